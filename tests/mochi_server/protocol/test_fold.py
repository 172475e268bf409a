"""What runs come to, as the table has them."""

from __future__ import annotations

from typing import Any

from mochi_server.protocol.fold import Fold, FoldedCall
from tests.support.folded_runs import EACH_RUN, FoldedRun


def end_of(fold: Fold, run: FoldedRun) -> str | None:
    if fold.error is not None:
        return fold.error.code
    if fold.complete is not None:
        return "complete"
    return "stopped" if run.payloads[-1][0] == "done" else None


def call_of(fold: Fold, call: FoldedCall) -> list[Any]:
    event, result = call.begin, call.result
    if result is not None:
        outcome = "done" if result.success else "failed"
        text = result.result if result.success else result.error_message
        return [event.tool_call_id, event.agent_call_id, outcome, text]
    asks = (event.tool_call_id, True) in fold.confirmations.values()
    return [event.tool_call_id, event.agent_call_id, "asking" if asks else "open", None]


@EACH_RUN
def test_a_run_comes_to_what_the_table_says(run: FoldedRun) -> None:
    fold = Fold(keeps_text=True)
    for event in run.events:
        fold.add(event)
    calls = fold.complete.client_calls if fold.complete else ()
    assert {
        "text": fold.text_of("text"),
        "thinking": fold.text_of("thinking"),
        "calls": [call_of(fold, call) for call in fold.calls],
        "client_calls": [call["name"] for call in calls],
        "retries": fold.retries,
        "waits": [name for name, (_, waits) in fold.confirmations.items() if waits],
        "end": end_of(fold, run),
    } == {key: value for key, value in run.comes_to.items() if key != "streamed"}


@EACH_RUN
def test_a_reader_that_comes_late_knows_what_it_has_read(run: FoldedRun) -> None:
    events = run.events
    for begin in range(1, len(events)):
        fold = Fold(keeps_text=True)
        for event in events[begin:]:
            fold.add(event)
        assert run.comes_to["text"].endswith(fold.text_of("text"))
        if begin < len(events) - 2:
            assert end_of(fold, run) == run.comes_to["end"]
