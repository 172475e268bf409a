"""Errors that other processes have written as JSON."""

from __future__ import annotations

from mochi_server.errors import InternalError, MochiError, ServerBusy, error_of


def test_an_error_of_another_process_is_of_the_class_with_its_code():
    busy = ServerBusy(limit=3)
    error = error_of(busy.code, busy.message, {**busy.details, "retry_after": 2})
    assert type(error) is ServerBusy
    assert (error.message, error.status, error.retry_after) == (busy.message, 503, 2)
    assert type(error_of("INTERNAL_ERROR", "It failed.", {})) is InternalError


def test_an_error_whose_code_is_not_known_here_keeps_it():
    """Another version wrote it, or an extension that is not imported here."""
    error = error_of("BILL_UNPAID", "Pay first.", {"bill": 7})
    assert error.as_json() == {
        "error": {"code": "BILL_UNPAID", "message": "Pay first.", "details": {"bill": 7}}
    }
    assert (error.status, MochiError.code) == (500, "INTERNAL_ERROR")
