"""Which refused tokens the audit log tells of."""

from __future__ import annotations

from mochi_project.http.refusals import MAX_ADDRESS, MOST_ADDRESSES, MOST_ENTRIES, Refusals
from mochi_server.core.audit import KEPT_FILES, MAX_BYTES, MAX_TEXT, AuditLog


def test_an_address_is_told_of_once_in_a_while():
    refusals = Refusals()
    found = [refusals.count(address) for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2", None)]
    assert found == [1, None, 1, 1]


def test_a_network_of_ipv6_is_one_address():
    refusals = Refusals()
    addresses = ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1", "::ffff:10.0.0.1")
    assert [refusals.count(address) for address in addresses] == [1, None, 1, 1]


def test_of_a_long_address_only_the_beginning_is_remembered():
    refusals = Refusals()
    assert [refusals.count("a" * length) for length in (5_000, 6_000)] == [1, None]
    assert max(map(len, refusals._seen)) == MAX_ADDRESS


def test_many_addresses_fill_neither_the_log_nor_the_memory():
    refusals = Refusals()
    found = [refusals.count(f"10.0.{n // 250}.{n % 250}") for n in range(2 * MOST_ADDRESSES)]
    assert found == [1] * MOST_ENTRIES + [None] * (2 * MOST_ADDRESSES - MOST_ENTRIES)
    assert len(refusals._seen) == MOST_ADDRESSES


def test_guesses_from_everywhere_leave_room_in_the_log_for_a_month(monkeypatch):
    refusals, now = Refusals(), 0.0
    monkeypatch.setattr("mochi_project.http.refusals.time.monotonic", lambda: now)
    entries = 0
    for minute in range(24 * 60):
        now = 60.0 * minute
        entries += sum(refusals.count(f"10.0.0.{n}") is not None for n in range(100))
    entry = AuditLog._line("refuse token", "refused", {"route": "x" * MAX_TEXT, "requests": 10_000})
    assert 31 * entries * len(entry) < MAX_BYTES * KEPT_FILES
