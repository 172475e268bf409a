from __future__ import annotations

from contextlib import ExitStack

import pytest

from mochi_server.core.slots import Slots
from mochi_server.errors import ServerBusy


def test_all_callers_together_have_the_slots_and_one_its_share():
    slots = Slots("runs", 4, share=0.5)
    with ExitStack() as held:
        for caller in ("one", "one", "two", ""):
            held.enter_context(slots.slot(caller))
        for caller in ("one", "two", "three", ""):
            with pytest.raises(ServerBusy) as refused:
                slots.check(caller)
            assert refused.value.retry_after == 1
    slots.check("one")


def test_one_caller_is_refused_while_others_are_not():
    slots = Slots("runs", 4, share=0.5)
    with slots.slot("one"), slots.slot("one"):
        with pytest.raises(ServerBusy) as refused, slots.slot("one"):
            pass
        assert refused.value.details["limit"] == 2
        slots.check("two")
        slots.check("")


def test_the_smallest_share_is_one_slot():
    slots = Slots("runs", 3, share=0.1)
    with slots.slot("one"), pytest.raises(ServerBusy):
        slots.check("one")
    slots.check("one")


def test_the_process_itself_has_no_share():
    slots = Slots("runs", 2, share=0.5)
    with slots.slot(""), slots.slot(""), pytest.raises(ServerBusy):
        slots.check("")
