"""Lists that say the same thing in several places agree."""

from __future__ import annotations

import re
from typing import Any

from chat.api.examples import EXAMPLES
from mochi_server.protocol.events import CLASSES
from mochi_server.protocol.fold import QUESTIONS
from mochi_server.sessions.types import LABELS, ToolExecutionPolicy
from mochi_server.terminal.chat.commands import POLICIES
from mochi_server.terminal.chat.run import ShownRun
from sessions_app.answers import LabelsShown
from sessions_app.schemas import LabelsBody
from tests.support.runs import EVENTS
from tests.support.server import ROOT

PAGE = ROOT / "mochi_project" / "page" / "app"
UNUSED: Any = None

LEFT_OUT = {
    "terminal": {"done"},  # the stream ends
    "page": {
        "done",  # the stream ends
        "history_compacted",  # said from message_complete, as of a stored answer
        "tool_continuation_start",  # the next text or call is seen
    },
}
"""Kinds of events that a reader does not show, and why."""


def keys_in(file: str, begin: str) -> set[str]:
    """Return the keys of an object literal of the page that begins with this line."""
    _, _, rest = (PAGE / file).read_text().partition(f"{begin}\n")
    indent = " " * (len(begin) - len(begin.lstrip()) + 2)
    body = rest.partition(f"\n{indent[2:]}}}")[0]
    return set(re.findall(rf"^{indent}(\w+)[:(,]", body, re.MULTILINE))


def test_readers_show_every_kind_of_event_or_say_that_they_leave_it_out():
    terminal = ShownRun(UNUSED, UNUSED, UNUSED, "run_1")
    shown = {
        "terminal": {*terminal._show, *(each.type for each in QUESTIONS)},
        "page": keys_in("conversation/events.js", "const REDUCERS = new Map(Object.entries({"),
    }
    for reader, left_out in LEFT_OUT.items():
        assert shown[reader] | left_out == CLASSES.keys(), reader
        assert not shown[reader] & left_out, reader


def test_every_kind_of_event_has_an_example_and_is_kept_in_journals_of_tests():
    assert EXAMPLES.keys() == CLASSES.keys()
    assert {event.type for event in EVENTS} == CLASSES.keys()


def test_readers_know_all_execution_policies():
    policies = {each.value for each in ToolExecutionPolicy}
    assert {*POLICIES} == policies
    assert keys_in("texts.js", "  policies: {") == policies


def test_requests_and_answers_have_all_labels_of_sessions():
    assert (*LabelsBody.model_fields,) == (*LabelsShown.model_fields,) == LABELS
