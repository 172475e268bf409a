from __future__ import annotations

import orjson
import pytest

from mochi_server.chat.reply import Reply
from mochi_server.protocol.completions import ContentDelta, Finish
from mochi_server.protocol.llm_response import (
    GenericFunction,
    GenericToolCall,
    LlmResponse,
)
from mochi_server.protocol.messages import AssistantMessage, ToolCall


@pytest.fixture
def calls():
    """A reply with two calls, of which one has no arguments."""
    reply = Reply()
    reply.add([ToolCall(id="call_1", name="list_all", arguments={"limit": 10})])
    reply.add([ToolCall(id="call_2", name="now", arguments={})])
    reply.add([Finish(reason="stop", eval_count=5, prompt_eval_count=7)])
    assert reply.finish is not None
    return LlmResponse.of(reply.message("any"), reply.finish.reason)


def test_a_reply_with_calls_says_so_in_the_generic_format(calls):
    assert calls.has_tool_calls()
    assert calls.get_status_text() == "Using tools: list_all, now..."
    assert calls.as_json() == {
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "list_all", "arguments": '{"limit":10}'},
            },
            {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
        ],
        "finish_reason": "tool_calls",
        "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12},
    }
    assert calls.to_chat_message_dict() == calls.as_json()["tool_calls"]


def test_what_to_run_has_arguments_as_objects(calls):
    assert calls.get_tool_execution_data() == [
        {"id": "call_1", "name": "list_all", "arguments": {"limit": 10}},
        {"id": "call_2", "name": "now", "arguments": {}},
    ]


def test_a_reply_of_text_has_no_calls():
    reply = Reply()
    reply.add([ContentDelta("Pa"), ContentDelta("ris."), Finish(reason="length")])
    response = LlmResponse.of(reply.message("any"), "length")
    assert not response.has_tool_calls()
    assert response.get_status_text() == response.content == "Paris."
    assert response.to_chat_message_dict() is None
    assert response.get_tool_execution_data() == []
    assert (response.finish_reason, response.usage) == ("length", None)


def test_calls_of_old_files_have_no_ids():
    stored = [{"function": {"name": "now", "arguments": {}}}]
    response = LlmResponse.of(AssistantMessage(tool_calls=stored))
    assert response.get_tool_execution_data() == [{"id": None, "name": "now", "arguments": {}}]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [('{"limit": 10}', {"limit": 10}), ("", {}), (None, {}), ({}, {}), ("{odd", {}), ("7", {})],
)
def test_arguments_are_an_object_however_a_file_has_them(arguments, meant):
    """Files of other writers have them as the services send them: as text, or not at all."""
    function = {"name": "now"} if arguments is None else {"name": "now", "arguments": arguments}
    response = LlmResponse.of(AssistantMessage(tool_calls=[{"function": function}]))
    assert response.get_tool_execution_data()[0]["arguments"] == meant
    assert orjson.loads(response.as_json()["tool_calls"][0]["function"]["arguments"]) == meant


def test_no_arguments_at_all_are_none():
    """As OpenAI writes them."""
    call = GenericToolCall(id="a", function=GenericFunction(name="now", arguments=""))
    assert LlmResponse(tool_calls=(call,)).get_tool_execution_data()[0]["arguments"] == {}
