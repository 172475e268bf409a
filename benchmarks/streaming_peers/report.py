"""The figures as tables, and the bars they are judged by."""

import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

OURS, RAW, USUAL = "mochi-server", "raw_relay", "fastapi_usual"
GAP_MS = 50
WHOLE_TURNS = ("1 stream", "32 streams", "256 streams", "100 paced", "400 paced")
"""Loads of so many tokens that the stream counts, not the turn's begin and end."""
Bar = tuple[str, str, bool]
"""What it says, what was measured, whether it is met."""


@dataclass(frozen=True)
class Row:
    """One server under one load; the medians of its rounds."""

    rate: float
    """Events per second."""
    turns: float
    """Turns per second."""
    cpu: float
    """Microseconds of the server's CPU per event."""
    gap50: float
    gap99: float
    """Milliseconds between two events of a stream."""
    first99: float
    """Milliseconds to a stream's first event."""
    late99: float
    """Milliseconds that the client itself was late."""
    waited: float
    """Share of the time that the server was ready to run and other programs had its core."""
    delivered: float
    """Share of the offered events that arrived in time."""
    failures: tuple[str, ...] = ()


def median(rows: list[Row]) -> Row:
    """Field by field; failures are gathered."""
    names = [field.name for field in fields(Row) if field.name != "failures"]
    middle = {name: statistics.median(getattr(row, name) for row in rows) for name in names}
    return Row(**middle, failures=tuple(why for row in rows for why in row.failures))


def show(name: str, rows: dict[str, Row]) -> None:
    """One load as a table."""
    print(f"\n{name}")
    print(
        f"  {'':15}{'events/s':>10}{'turns/s':>9}{'us/event':>10}{'x raw':>7}{'x usual':>9}"
        f"{'p50 ms':>8}{'p99 ms':>8}{'first p99':>11}{'client p99':>12}{'waited':>8}"
        f"{'delivered':>11}"
    )
    for who, row in rows.items():
        by_raw = row.cpu / rows[RAW].cpu if RAW in rows else float("nan")
        by_usual = row.rate / rows[USUAL].rate if USUAL in rows else float("nan")
        print(
            f"  {who:15}{row.rate:10,.0f}{row.turns:9,.0f}{row.cpu:10.1f}{by_raw:7.2f}"
            f"{by_usual:9.2f}{row.gap50:8.1f}{row.gap99:8.1f}{row.first99:11.1f}"
            f"{row.late99:12.1f}{row.waited:8.0%}{row.delivered:11.4f}"
        )
        for why in row.failures[:2]:
            print(f"    ! {why}")
    sys.stdout.flush()


def at_most(says: str, value: float, limit: float) -> Bar:
    return f"{says} at most {limit:g}", f"{value:.2f}", value <= limit


def at_least(says: str, value: float, limit: float) -> Bar:
    return f"{says} at least {limit:g}", f"{value:.2f}", value >= limit


def bars_of(load: str, by: dict[str, Row]) -> Iterator[Bar]:
    """The bars of one load."""
    ours, raw, usual = by[OURS], by[RAW], by[USUAL]
    if load in WHOLE_TURNS:
        yield at_most(f"{load}: CPU per event / raw", ours.cpu / raw.cpu, 1.3)
    if load in ("32 streams", "256 streams"):
        yield at_least(f"{load}: events/s / usual", ours.rate / usual.rate, 5)
    if load.endswith("paced"):
        yield at_most(f"{load}: CPU per event / usual", ours.cpu / usual.cpu, 0.5)
    if load == "400 paced":
        yield at_least(f"{load}: share of events delivered", ours.delivered, 1)
        yield f"{load}: p99 gap under {GAP_MS} ms", f"{ours.gap99:.1f}", ours.gap99 < GAP_MS
    if load.startswith("short"):
        yield at_least(f"{load}: turns/s / usual", ours.turns / usual.turns, 1)
    yield f"{load}: no failed turn", "; ".join(ours.failures)[:200] or "0", not ours.failures


def judge(
    rows: dict[str, dict[str, Row]],
    held: dict[str, int],
    kib: dict[str, float],
    file: Path | None,
) -> int:
    """Print the bars; 1 when one is missed or there is nothing to judge ours by."""
    if file:
        loads = {name: {who: asdict(row) for who, row in by.items()} for name, by in rows.items()}
        file.write_text(json.dumps({"loads": loads, "capacity": held, "kib": kib}, indent=2))
    measured = [*rows.values(), *([kib] if kib else [])]
    if not all({OURS, RAW, USUAL} <= set(by) for by in measured):
        print("\nnot all three servers ran: nothing is judged")
        return 0
    print("\nbars")
    missed = 0
    bars = [bar for load, by in rows.items() for bar in bars_of(load, by)]
    if kib:
        bars.append(at_most("KiB per open stream", kib[OURS], 40))
    for says, value, met in bars:
        missed += not met
        print(f"  {'ok  ' if met else 'MISS'} {says}: {value}")
    return 1 if missed else 0
