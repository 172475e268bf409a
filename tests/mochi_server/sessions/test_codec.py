"""What is encoded can be read again, whatever it holds."""

from __future__ import annotations

import orjson
import pytest

from mochi_server.sessions.codec import encode

INFINITE = [float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize("beside", ["plain", "half a pair: \ud800", 2**70])
def test_what_json_cannot_hold_is_replaced(beside: object):
    decoded = orjson.loads(encode({"numbers": INFINITE, "beside": beside, "pair": "\U0001f600"}))

    assert decoded["numbers"] == [None, None, None]
    assert decoded["pair"] == "\U0001f600"
    if isinstance(beside, str):
        assert decoded["beside"] == beside.replace("\ud800", "\ufffd")
