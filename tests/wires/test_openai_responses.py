"""Responses and conversations, by OpenAI's own package against a real server."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, get_args, get_type_hints

import anyio
import openai
import pytest
from openai.types.responses.response_input_item_param import ResponseInputItemParam

from tests.support.decisions import decide_next
from tests.support.images import png
from tests.support.scripts import calls, fails, says, scripted, thinks
from tests.support.waiting import until
from tests.wires.test_openai_chat import SERVER_ADD, Town, client, user

__all__ = ["client"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
NAMED = {"type": "function"}
STALL = {"stall": {"seconds": 0.5}}


async def create(client: openai.AsyncOpenAI, *replies: Any, **options: Any) -> Any:
    if replies:
        options = {"input": scripted(*replies), **options}
    return await client.responses.create(**{"model": "lorem", **options})


def without_extras(response: Any) -> dict[str, Any]:
    """A response without what the vendor does not have, of which a session keeps less."""
    return response.model_dump(exclude={"mochi"})


def text_of(events: list[Any]) -> str:
    return "".join(each.delta for each in events if each.type == "response.output_text.delta")


async def ended(client: openai.AsyncOpenAI, response_id: str) -> Any:
    return await until(
        lambda: client.responses.retrieve(response_id),
        lambda response: response.status not in {"queued", "in_progress"},
    )


async def test_a_response_in_one_piece_is_kept(client, server):
    made = await create(client, [thinks("Hm.", "Hello.")], metadata={"a": "b"}, instructions="Hi")
    assert made.output_text == "Hello."
    assert [item.type for item in made.output] == ["reasoning", "message"]
    assert made.status == "completed"
    assert made.usage.output_tokens > 0
    assert made.completed_at >= made.created_at
    found = await client.responses.retrieve(made.id)
    assert without_extras(found) == without_extras(made)
    assert (found.status, found.metadata, found.instructions) == ("completed", {"a": "b"}, "Hi")
    items = await client.responses.input_items.list(made.id)
    assert [item.role for item in items.data] == ["user"]
    status, _ = await server.get(f"/sessions/{made.mochi['session_id']}")
    assert status == 200
    await client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)


async def test_a_stream_ends_with_what_is_stored(client):
    stream = await create(client, [thinks("Hm.", "Hello there.")], stream=True)
    events = [event async for event in stream]
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    assert text_of(events) == "Hello there."
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))
    found = await client.responses.retrieve(events[-1].response.id)
    assert without_extras(found) == without_extras(events[-1].response)


async def test_previous_responses_continue_or_fork_a_session(client, server):
    first = await create(client, [says("One.")])
    second = await create(client, [says("Two.")], previous_response_id=first.id)
    assert second.mochi["session_id"] == first.mochi["session_id"]
    other = await create(client, [says("Three.")], previous_response_id=first.id)
    assert other.mochi["session_id"] != first.mochi["session_id"]
    texts = {}
    for response in (second, other):
        _, session = await server.get(f"/sessions/{response.mochi['session_id']}")
        said = [each["content"] for each in session["messages"] if each["role"] == "assistant"]
        texts[response.id] = said
    assert texts == {second.id: ["One.", "Two."], other.id: ["One.", "Three."]}
    with pytest.raises(openai.BadRequestError):  # others follow it
        await client.responses.delete(first.id)


async def test_a_response_is_continued_after_another_run_or_in_another_session(client, server):
    """Its answer was made anew; its session was forked: the run before is not the response's."""
    first = await create(client, [says("One.")])
    session_id = first.mochi["session_id"]
    status, again = await server.post(f"/chat/{session_id}", {})
    assert status == 200, again
    status, fork = await server.post(f"/sessions/{session_id}/fork")
    assert status == 201, fork
    for continued in (session_id, fork["session_id"]):
        previous = first.id.replace(session_id, continued)
        second = await create(client, [says("Two.")], previous_response_id=previous)
        assert second.output_text == "Two."
        assert second.mochi["session_id"] == continued


async def test_a_response_of_another_session_than_the_named_one_is_refused(client, server):
    first, other = [await create(client, [says(f"{n}.")]) for n in range(2)]

    def named(response: Any) -> dict[str, Any]:
        return {"extra_headers": {"X-Mochi-Session": response.mochi["session_id"]}}

    asked = await create(client, [calls("add", a=2, b=3)], [says("Done.")], tools=[SERVER_ADD])
    approval = {"type": "mcp_approval_response", "approve": True}
    approval["approval_request_id"] = asked.output[-1].id
    for continued in (
        {"previous_response_id": first.id},
        {"conversation": first.conversation.id},
        {"input": [approval]},
    ):
        with pytest.raises(openai.BadRequestError, match="continues another one"):
            await create(client, [says("Hi.")], **continued, **named(other))
    for continued, said in (
        ({"previous_response_id": first.id}, "Two."),
        ({"conversation": first.conversation.id}, "Three."),
    ):
        made = await create(client, [says(said)], **continued, **named(first))
        assert made.output_text == said
        assert made.mochi["session_id"] == first.mochi["session_id"]
    decided = await client.responses.create(model="lorem", input=[approval], **named(asked))
    assert decided.output_text == "Done."


async def test_a_function_of_the_client(client):
    asked = await create(client, [calls("weather", city="Rome")], [says("Sunny.")], tools=[WEATHER])
    [call] = asked.output
    assert (call.type, call.name, call.arguments) == ("function_call", "weather", '{"city":"Rome"}')
    assert (await client.responses.retrieve(asked.id)).output == asked.output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "22 degrees"}
    answered = await client.responses.create(
        model="lorem", input=[result], previous_response_id=asked.id, tools=[WEATHER]
    )
    assert answered.output_text == "Sunny."


async def test_a_call_that_was_not_offered_is_the_clients_beside_its_own(client):
    script = [calls("weather", city="Rome"), calls("tides", city="Rome")], [says("Sunny.")]
    asked = await create(client, *script, tools=[WEATHER])
    assert [(item.type, item.name) for item in asked.output] == [
        ("function_call", "weather"),
        ("function_call", "tides"),
    ]
    assert (await client.responses.retrieve(asked.id)).output == asked.output
    results = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "22"}
        for call in asked.output
    ]
    answered = await client.responses.create(
        model="lorem", input=results, previous_response_id=asked.id, tools=[WEATHER]
    )
    assert answered.output_text == "Sunny."
    assert (await client.responses.retrieve(asked.id)).output == asked.output


async def test_nothing_is_stored_if_the_client_sends_all(client, server):
    _, before = await server.get("/sessions")
    question = scripted([calls("weather", city="Rome")], [says("Sunny.")])
    history: list[Any] = [{"role": "user", "content": question}]
    options = {"model": "lorem", "store": False, "tools": [WEATHER]}
    asked = await client.responses.create(input=history, **options)
    history += [item.model_dump() for item in asked.output]
    call_id = asked.output[0].call_id
    history.append({"type": "function_call_output", "call_id": call_id, "output": "22"})
    answered = await client.responses.create(input=history, **options)
    assert answered.output_text == "Sunny."
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(answered.id)
    _, after = await server.get("/sessions")
    assert after == before


@pytest.mark.parametrize("approve", [True, False])
async def test_a_call_of_a_server_tool_is_approved_on_the_wire(client, approve):
    replies = [says("Let me see."), calls("add", a=2, b=3)], [says("Done.")]
    asked = await create(client, *replies, tools=[SERVER_ADD])
    *_, request = asked.output
    assert (request.type, request.name) == ("mcp_approval_request", "add")
    assert request.arguments == '{"a":2,"b":3}'
    answer = {
        "type": "mcp_approval_response",
        "approval_request_id": request.id,
        "approve": approve,
    }
    options = {"input": [answer], "previous_response_id": asked.id, "model": "lorem"}
    stream = await client.responses.create(**options, stream=True)
    events = [event async for event in stream]
    assert events[0].type == "response.created"
    done = events[-1].response
    assert done.output_text == "Done."
    [call] = [item for item in done.output if item.type == "mcp_call"]
    assert (call.output, call.error is None) == (("5", True) if approve else (None, False))
    assert approve or call.error.type == "mcp_tool_execution_error"
    [sent] = (await client.responses.input_items.list(done.id)).data
    assert {**answer, "id": sent.id, "reason": sent.reason} == sent.model_dump()
    with pytest.raises(openai.APIStatusError):  # it is decided
        await client.responses.create(**options)


async def test_a_client_that_sends_the_whole_conversation_approves_as_well(client):
    """As OpenAI's agents do: no ``previous_response_id``, and all items of the answers before."""
    options = {"model": "lorem", "tools": [SERVER_ADD]}
    script = [says("Let me see."), calls("add", a=2, b=3)], [says("Done.")]
    history = [{"role": "user", "content": scripted(*script)}]
    response = await client.responses.create(input=history, **options)
    history += [item.model_dump(exclude_none=True) for item in response.output]
    answer = {"type": "mcp_approval_response", "approve": True}
    history.append({**answer, "approval_request_id": history[-1]["id"]})
    response = await client.responses.create(input=history, **options)
    assert [item.type for item in response.output] == ["mcp_call", "message"]
    assert response.output_text == "Done."
    with pytest.raises(openai.BadRequestError, match="no such approval_request_id"):
        await client.responses.create(input=history, **options)  # it is decided
    history += [item.model_dump(exclude_none=True) for item in response.output]
    history.append({"role": "user", "content": scripted([says("Again.")])})
    response = await client.responses.create(input=history, **options)
    assert response.output_text == "Again."


async def test_two_calls_of_one_reply_are_approved_one_after_the_other(client):
    script = [calls("add", a=1, b=2), calls("add", a=3, b=4)], [says("Done.")]
    response = await create(client, *script, tools=[SERVER_ADD])
    for status in ("in_progress", "completed"):
        request = response.output[-1]
        answer = {"approval_request_id": request.id, "approve": True}
        response = await client.responses.create(
            model="lorem",
            input=[{"type": "mcp_approval_response", **answer}],
            previous_response_id=response.id,
        )
        stored = await client.responses.retrieve(response.id)
        assert [item.status for item in stored.output[:2]] == [status] * 2
    run = [item for item in response.output if item.type == "mcp_call"]
    results = {(item.arguments, item.output) for item in run}
    assert results == {('{"a":1,"b":2}', "3"), ('{"a":3,"b":4}', "7")}
    assert response.output_text == "Done."
    whole = [event async for event in await client.responses.retrieve(response.id, stream=True)]
    assert [event.type for event in whole[:2]] == ["response.created", "response.in_progress"]
    assert whole[-1].response == response
    for event in whole[:-1]:
        number = event.sequence_number
        stream = await client.responses.retrieve(response.id, stream=True, starting_after=number)
        rest = [each async for each in stream]
        assert rest == [each for each in whole if each.sequence_number > number]


async def test_a_response_in_the_background(client):
    made = await create(client, [says("Slow"), STALL, says("answer.")], background=True)
    assert made.status in {"queued", "in_progress"}
    assert (await ended(client, made.id)).output_text == "Slow\n\nanswer."


async def test_a_stream_that_is_cut_goes_on_where_the_client_was(client):
    replies = [says("One two three four five."), STALL, says("Six seven.")]
    stream = await create(client, replies, background=True, stream=True)
    received = []
    async for event in stream:
        received.append(event)
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    response_id, after = received[0].response.id, received[-1].sequence_number
    rest = await client.responses.retrieve(response_id, stream=True, starting_after=after)
    received += [event async for event in rest]
    whole = await client.responses.retrieve(response_id, stream=True)
    again = [event async for event in whole]
    assert received[-1].response.output == again[-1].response.output
    assert text_of(received) == text_of(again) == received[-1].response.output_text
    numbers = [event.sequence_number for event in received]
    assert numbers == sorted(set(numbers))


async def test_a_response_is_cancelled(client):
    made = await create(client, [says("Begun"), {"stall": {"seconds": 60}}], background=True)
    cancelled = await client.responses.cancel(made.id)
    assert cancelled.status == "cancelled"
    assert (await client.responses.retrieve(made.id)).status == "cancelled"


async def test_failures(client):
    with pytest.raises(openai.InternalServerError, match="Gone"):
        await create(client, [fails(500, "Gone.")])
    for response_id in ("resp_1", "resp_0123456789_0123456789abcdef"):
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(response_id)
        with pytest.raises(openai.NotFoundError):
            await create(client, [says("Hi.")], previous_response_id=response_id)
    with pytest.raises(openai.BadRequestError):
        await create(client, [says("Hi.")], input=[])
    made = await create(client, [fails(500, "Gone.")], background=True)
    failed = await ended(client, made.id)
    assert failed.status == "failed"
    assert failed.error.message


async def test_a_conversation(client, server):
    item = {"type": "message", "role": "user", "content": "Remember 5."}
    conversation = await client.conversations.create(items=[item], metadata={"a": "b"})
    assert conversation.metadata == {"a": "b"}
    made = await create(client, [says("Hello.")], conversation=conversation.id)
    assert made.conversation.id == conversation.id
    listed = await client.conversations.items.list(conversation.id, order="asc")
    assert [each.role for each in listed.data] == ["user", "user", "assistant"]
    latest = await client.conversations.items.list(conversation.id, limit=1)
    assert [each.role for each in latest.data] == ["assistant"]
    changed = await client.conversations.update(conversation.id, metadata={"c": "d"})
    assert changed.metadata == {"c": "d"}
    call = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "22"}
    added = await client.conversations.items.create(conversation.id, items=[item, call, result])
    assert [each.type for each in added.data] == ["message", "function_call", result["type"]]
    latest = await client.conversations.items.list(conversation.id, limit=3, order="desc")
    assert latest.data == added.data[::-1]
    answered = await create(client, [says("Sunny.")], conversation=conversation.id)
    assert answered.output_text == "Sunny."
    await client.conversations.delete(conversation.id)
    with pytest.raises(openai.NotFoundError):
        await client.conversations.retrieve(conversation.id)


CALLED = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "22"}
SAID = {"role": "assistant", "content": "Let me see."}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm."}],
}
OTHER = {"type": "function_call", "call_id": "call_2", "name": "tides", "arguments": "{}"}


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize(
    "items",
    [
        [CALLED, SAID, OUTPUT],
        [CALLED, THOUGHT, OUTPUT],
        [THOUGHT, CALLED, SAID, THOUGHT, OUTPUT],
        [SAID, CALLED, SAID, OUTPUT],
        [CALLED, OTHER, {**OUTPUT, "call_id": "call_2"}, SAID, OUTPUT],
    ],
)
async def test_a_result_may_follow_what_was_said_after_its_call(client, server, items, store):
    question = {"role": "user", "content": scripted([says("Hm.")], [says("Sunny.")])}
    answered = await client.responses.create(
        model="lorem", input=[question, *items], tools=[WEATHER], store=store
    )
    assert answered.output_text == "Sunny."
    if not store:
        return
    _, session = await server.get(f"/sessions/{answered.mochi['session_id']}")
    _, reply, *results, answer = session["messages"]
    assert {each["role"] for each in results} == {"tool"}
    assert len(results) == len(reply["tool_calls"])
    assert reply.get("thinking", "").split() == ["Hm."] * items.count(THOUGHT)
    assert reply["content"].split("\n\n") == ["Let me see."] * items.count(SAID) or [""]
    assert answer["content"] == "Sunny."


def types_of(union: Any) -> set[str]:
    """Return the values of ``type`` of the dictionaries in a union."""
    return {
        value
        for each in get_args(union)
        for value in get_args(get_type_hints(each).get("type"))
        if isinstance(value, str)
    }


async def test_items_of_the_vendors_own_tools_are_left_out_and_named(client):
    taken = {"message", "function_call", "function_call_output", "reasoning", "item_reference"}
    others = types_of(ResponseInputItemParam) - taken - {"mcp_approval_response", "compaction"}
    assert {"web_search_call", "custom_tool_call_output"} <= others
    history = [{"type": each, "id": "x", "call_id": "x"} for each in sorted(others)]
    history += [{"type": "mcp_call", "server_label": "mochi"}]  # of this server: it has it
    made = await create(client, input=[*history, user([says("Hello.")])])
    assert made.output_text == "Hello."
    assert made.mochi["ignored_items"] == sorted(others)
    found = await client.responses.retrieve(made.id)
    assert found.mochi["ignored_items"] == sorted(others)
    conversation = await client.conversations.create(items=[*history[:2], SAID])
    assert conversation.mochi["ignored_items"] == sorted(others)[:2]
    added = await client.conversations.items.create(conversation.id, items=history[:1])
    assert (added.data, added.mochi["ignored_items"]) == ([], sorted(others)[:1])


@pytest.mark.parametrize(
    "change",
    [
        {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        {"input": [{"type": "function_call_output", "call_id": "x", "output": 5}]},
        {"input": ["Hi"]},
        {"input": [5]},
        {"tool_choice": {"type": "web_search"}},
        {"tools": ["weather"]},
        {"text": {"format": {"type": "xml"}}},
        {"conversation": 5},
    ],
)
async def test_a_refusal_names_nothing_of_python(client, change):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(**{"model": "lorem", "input": "Hi.", **change})
    said = caught.value.message
    for name in ("()", "lambda", "dictionary", "instance", "extract", "tag", "object to"):
        assert name not in said


@pytest.mark.parametrize("stream", [True, False])
async def test_thoughts_are_a_summary_where_one_is_asked_for(client, stream):
    script = scripted([thinks("First. Then.", "Hello.")])
    options = {"model": "lorem", "input": script, "reasoning": {"summary": "auto"}}
    if stream:
        events = [each async for each in await client.responses.create(**options, stream=True)]
        made = events[-1].response
        kinds = list(dict.fromkeys(each.type for each in events if "reasoning" in each.type))
        assert kinds == [
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
        ]
        deltas = [each.delta for each in events if each.type == kinds[1]]
        assert "".join(deltas) == "First. Then."
    else:
        made = await client.responses.create(**options)
    thought, said = made.output
    assert [part.text for part in thought.summary] == ["First. Then."]
    assert not thought.content
    assert made.reasoning.summary == "auto"
    assert without_extras(await client.responses.retrieve(made.id)) == without_extras(made)
    history = [user([says("Hm.")]), thought.model_dump(), said.model_dump()]
    again = await client.responses.create(
        model="lorem", input=[*history, user([says("Bye.")])], reasoning={"summary": "concise"}
    )
    listed = await client.responses.input_items.list(again.id, order="asc")
    assert listed.data[1].content[0].text == "First. Then."


async def test_the_sdk_shows_a_summary(client):
    script = scripted([thinks("Hm.", "Hello.")])
    options = {"model": "lorem", "input": script, "reasoning": {"summary": "detailed"}}
    async with client.responses.stream(**options) as stream:
        done = await stream.get_final_response()
    assert done.output[0].summary[0].text == "Hm."


async def test_the_items_of_a_request_are_all_that_it_has_sent(client):
    image = f"data:image/png;base64,{b64encode(png()).decode()}"
    question = [
        {"type": "input_text", "text": scripted([says("A pixel.")])},
        {"type": "input_image", "image_url": image, "detail": "auto"},
    ]
    called = {"call_id": "call_1", "name": "weather", "arguments": "{}"}
    sent = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How is the weather?"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", **called},
        {"type": "function_call_output", "call_id": "call_1", "output": "22"},
        {"role": "assistant", "content": "Sunny."},
        {"role": "user", "content": question},
    ]
    sent[2]["content"] = [{"type": "reasoning_text", "text": "Hm."}]
    made = await client.responses.create(model="lorem", input=sent, instructions="Hi.")
    wanted = {"include": ["message.input_image.image_url"], "order": "asc"}
    listed = await client.responses.input_items.list(made.id, **wanted)
    kinds = [item.get("type", "message") for item in sent]
    assert [item.type for item in listed.data] == kinds
    assert [getattr(item, "role", None) for item in listed.data] == [
        each.get("role") for each in sent
    ]
    assert listed.data[0].content[0].text == "Be brief."
    assert listed.data[-1].content[1].image_url == image
    pages = client.responses.input_items.list(made.id, limit=2)
    assert [item.id async for item in pages] == [item.id for item in listed.data[::-1]]
    again = await create(client, [says("Hi.")], previous_response_id=made.id)
    assert len((await client.responses.input_items.list(again.id)).data) == 1


async def test_the_items_of_an_imported_session(client, server):
    """It has no time, its call has no id, and the result an image, which no item shows."""
    image = {"attachment_id": "0123456789abcdef", "media_type": "image/png", "size": 1}
    call = {"function": {"name": "draw", "arguments": {}}}
    messages = [
        {"role": "user", "content": "Draw.", "message_id": "0000000001"},
        {"role": "assistant", "tool_calls": [call], "message_id": "0000000002"},
        {"role": "tool", "content": "Drawn.", "message_id": "0000000003", "attachments": [image]},
        {"role": "assistant", "content": "There.", "message_id": "0000000004"},
    ]
    metadata = {"session_id": "drawn", "model": "lorem"}
    file = {"metadata": metadata, "messages": messages}
    status, report = await server.post("/sessions/import", file)
    assert status == 200, report
    conversation = await client.conversations.retrieve("conv_drawn")
    assert conversation.created_at is None
    wanted = {"include": ["message.input_image.image_url"], "order": "asc"}
    items = client.conversations.items
    listed = [item async for item in items.list(conversation.id, **wanted)]
    assert [item.type for item in listed] == [
        *("message", "function_call", "function_call_output", "message")
    ]
    for item in listed:
        found = await items.retrieve(
            item.id, conversation_id=conversation.id, include=wanted["include"]
        )
        assert found.id == item.id
    await items.delete(listed[1].id, conversation_id=conversation.id)
    left = [item.id async for item in items.list(conversation.id, order="asc")]
    assert left == [listed[0].id, listed[3].id]


async def test_one_item_of_a_conversation(client):
    """Read and deleted; the items of an answer have the ids that the response has."""
    conversation = (await client.conversations.create()).id
    replies = [thinks("Hm.", "Let me see."), calls("weather", city="Rome")], [says("Sunny.")]
    asked = await create(client, *replies, conversation=conversation, tools=[WEATHER])
    output = {
        "type": "function_call_output",
        "call_id": asked.output[-1].call_id,
        "output": "22",
    }
    answered = await client.responses.create(
        model="lorem", input=[output], conversation=conversation, tools=[WEATHER]
    )
    items = client.conversations.items

    async def listed() -> list[Any]:
        return [item async for item in items.list(conversation, order="asc")]

    before = await listed()
    assert [item.id for item in before[1:4]] == [item.id for item in asked.output]
    assert before[-1].id == answered.output[-1].id
    for item in before:
        assert await items.retrieve(item.id, conversation_id=conversation) == item
    _, thought, said, call, result, _ = before
    for gone, left in (
        (said, 5),
        (call, 3),  # its result goes with it
        (thought, 2),
    ):
        changed = await items.delete(gone.id, conversation_id=conversation)
        assert changed.id == conversation
        assert len(await listed()) == left
        with pytest.raises(openai.NotFoundError, match="no item"):
            await items.retrieve(gone.id, conversation_id=conversation)
    with pytest.raises(openai.NotFoundError):
        await items.delete(result.id, conversation_id=conversation)
    made = await create(client, [says("Hello.")], conversation=conversation)
    assert made.output_text == "Hello."
    assert [item.type for item in await listed()] == ["message"] * 4


async def test_the_tokens_of_a_request_are_counted(client, server):
    count = client.responses.input_tokens.count
    few = await count(model="lorem", input="Hello?")
    assert few.object == "response.input_tokens"
    more = await count(model="lorem", input="Hello?", instructions="Be brief.", tools=[WEATHER])
    assert more.input_tokens > few.input_tokens > 0
    made = await create(client, [says("Hello. " * 20)])
    after = await count(input="Hello?", previous_response_id=made.id)
    named = await count(input="Hello?", conversation=made.conversation.id)
    assert after == named
    assert after.input_tokens > few.input_tokens + 20
    _, session = await server.get(f"/sessions/{made.mochi['session_id']}")
    assert len(session["messages"]) == 2  # nothing was asked


async def test_a_conversation_is_compacted_and_goes_on_from_the_item(client):
    said = ["My name is Ada.", "I live in Rome."]
    history = [
        {"role": role, "content": text}
        for text in said
        for role, text in (("user", text), ("assistant", "I see."))
    ]
    compacted = await client.responses.compact(model="lorem", input=history)
    assert compacted.object == "response.compaction"
    *users, item = compacted.output
    assert [each.content[0].text for each in users] == said
    assert item.type == "compaction"
    assert compacted.usage.input_tokens > 0
    assert compacted.usage.output_tokens > 0
    output = [each.model_dump(exclude_none=True, warnings=False) for each in compacted.output]
    question = {"role": "user", "content": scripted([says("You are Ada.")])}
    made = await client.responses.create(model="lorem", input=[*output, question])
    assert made.output_text == "You are Ada."
    items = await client.responses.input_items.list(made.id, order="asc")
    assert items.data[2].content[0].text.startswith("[Summary ")
    for part in ({"previous_response_id": made.id}, {"input": "Hello."}):
        again = await client.responses.compact(model="lorem", **part)
        assert again.output[-1].type == "compaction"
    for content in ("gAAAA", "é"):
        wrong = {"type": "compaction", "encrypted_content": content}
        with pytest.raises(openai.BadRequestError, match="none of this server"):
            await client.responses.create(model="lorem", input=[wrong, question])
    with pytest.raises(openai.BadRequestError, match="no message to compact"):
        await client.responses.compact(model="lorem")


async def test_what_follows_the_response_that_is_named_is_not_compacted_nor_counted(client):
    first = await create(client, input="Alpha.")
    second = await create(client, input="Beta.", previous_response_id=first.id)
    for response, said in ((first, ["Alpha."]), (second, ["Alpha.", "Beta."])):
        compacted = await client.responses.compact(
            model="lorem", previous_response_id=response.id, input="Gamma."
        )
        *users, _ = compacted.output
        assert [each.content[0].text for each in users] == [*said, "Gamma."]
    count = client.responses.input_tokens.count
    few, many = [
        (await count(input="Gamma.", previous_response_id=each.id)).input_tokens
        for each in (first, second)
    ]
    assert few < many
    unknown = f"{first.id[:-16]}{'0' * 16}"
    for asked in (
        client.responses.compact(model="lorem", previous_response_id=unknown),
        count(previous_response_id=unknown),
    ):
        with pytest.raises(openai.NotFoundError):
            await asked


async def test_a_call_that_waits_for_its_result_stays_behind_what_is_compacted(client):
    call = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
    history = [{"role": "user", "content": scripted([says("It rains.")])}, call]
    compacted = await client.responses.compact(model="lorem", input=history)
    assert [each.type for each in compacted.output] == ["message", "compaction", "function_call"]
    output = [each.model_dump(exclude_none=True, warnings=False) for each in compacted.output]
    result = {"type": "function_call_output", "call_id": "call_1", "output": "Rain."}
    made = await client.responses.create(model="lorem", input=[*output, result], tools=[WEATHER])
    _, sent, waiting, answer = (await client.responses.input_items.list(made.id, order="asc")).data
    assert sent.content[0].text.startswith("[Summary ")
    assert waiting.call_id == answer.call_id == "call_1"


async def test_the_sdk_parses_a_stream(client):
    script = scripted([says("Hello.")])
    async with client.responses.stream(model="lorem", input=script) as stream:
        async for _ in stream:
            pass
        assert (await stream.get_final_response()).output_text == "Hello."


async def test_decisions_of_the_inbox_count_as_well(client, server):
    replies = [calls("add", a=2, b=3)], [says("Done.")]
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: decide_next(server, approved=True))
        made = await create(client, *replies, tools=[SERVER_ADD], store=False)
    assert made.output_text == "Done."
    assert [item.type for item in made.output] == ["mcp_call", "message"]


async def test_a_call_of_a_conversation_that_is_not_kept_is_not_remembered_for_it(client, server):
    replies = [calls("add", a=2, b=3)], [says("Done.")]

    async def decide() -> None:
        _, listed = await until(
            lambda: server.get("/confirmations"), lambda answer: answer[1]["confirmations"]
        )
        (waiting,) = listed["confirmations"]
        assert waiting["session_kept"] is False
        path = f"/confirmations/{waiting['confirmation_id']}"
        status, answer = await server.post(path, {"approved": True, "remember": "session"})
        assert (status, answer["error"]["code"]) == (422, "VALIDATION_ERROR")
        assert "not kept" in answer["error"]["message"]
        status, _ = await server.post(path, {"approved": True})
        assert status == 200

    async with anyio.create_task_group() as group:
        group.start_soon(decide)
        made = await create(client, *replies, tools=[SERVER_ADD], store=False)
    assert made.output_text == "Done."


async def test_a_response_says_what_its_request_asked_for(client):
    """With all fields, none null that Open Responses has as numbers."""
    city = {**WEATHER, "strict": True}
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{**NAMED, "name": "weather"}]}
    asked = {
        "tools": [city, {**WEATHER, "name": "tides"}, {"type": "web_search"}],
        "tool_choice": allowed,
        "parallel_tool_calls": False,
        "presence_penalty": 0.5,
        "reasoning": {"effort": "low"},
        "prompt_cache_key": "key",
    }
    names = {key: asked.pop(key) for key in ("presence_penalty",)}
    made = await create(client, [calls("tides")], [says("Hi.")], extra_body=names, **asked)
    assert made.output[-1].type == "message"  # the model may not call it
    for response in (made, await client.responses.retrieve(made.id)):
        got = response.to_dict()
        assert (got["temperature"], got["top_p"], got["frequency_penalty"]) == (1, 1, 0)
        assert (got["presence_penalty"], got["safety_identifier"]) == (0.5, None)
        assert (got["prompt_cache_key"], got["reasoning"]["effort"]) == ("key", "low")
        assert (got["tool_choice"], got["parallel_tool_calls"]) == (allowed, False)
        assert got["tools"][0] == city
        assert [tool["name"] for tool in got["tools"]] == ["weather", "tides"]
        assert got["mochi"]["ignored_tools"] == ["web_search"]


async def test_an_image_that_a_function_returns(client):
    script = [calls("weather", city="Rome")], [says("Sunny.")]
    asked = await create(client, *script, tools=[WEATHER])
    output = [
        {"type": "input_text", "text": "See:"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{b64encode(png()).decode()}"},
    ]
    result = {
        "type": "function_call_output",
        "call_id": asked.output[0].call_id,
        "output": output,
    }
    answered = await client.responses.create(
        model="lorem", input=[result], previous_response_id=asked.id, tools=[WEATHER]
    )
    assert "[files: 1]" in answered.output_text


async def test_a_structured_answer(client):
    answer = await client.responses.parse(model="lorem", input="The largest?", text_format=Town)
    assert isinstance(answer.output_parsed, Town)
    assert (await client.responses.retrieve(answer.id)).text.format.type == "json_schema"


async def test_items_that_the_client_names_by_their_ids_are_those_of_the_session(client, server):
    """As the AI SDK does: a whole conversation, in which the answers are references."""
    replies = [says("Let me see."), calls("weather", city="Rome")], [says("Sunny.")]
    asked = await create(client, *replies, tools=[WEATHER])
    said, call = asked.output
    history = [
        {"role": "user", "content": scripted(*replies)},
        *({"type": "item_reference", "id": item.id} for item in (said, call)),
        {"type": "function_call_output", "call_id": call.call_id, "output": "22"},
    ]
    answered = await client.responses.create(model="lorem", input=history, tools=[WEATHER])
    assert answered.output_text == "Sunny."
    assert answered.mochi["session_id"] == asked.mochi["session_id"]
    for item_id in ("msg_1", said.id.replace("msg_", "msg_0")):
        history[1] = history[2] = {"type": "item_reference", "id": item_id}
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model="lorem", input=history, tools=[WEATHER])


async def test_a_response_in_the_background_asks_whoever_polls(client):
    replies = [says("Let me see."), calls("add", a=2, b=3)], [says("Done.")]
    made = await create(client, *replies, tools=[SERVER_ADD], background=True)
    asked = await ended(client, made.id)
    *_, request = asked.output
    assert (asked.status, request.type) == ("completed", "mcp_approval_request")
    answer = {"type": "mcp_approval_response", "approve": True}
    options = {"previous_response_id": made.id, "model": "lorem"}
    wrong = {**answer, "approval_request_id": f"{request.id}0"}
    with pytest.raises(openai.BadRequestError):
        await client.responses.create(input=[wrong], **options)
    right = {**answer, "approval_request_id": request.id}
    assert (await client.responses.create(input=[right], **options)).output_text == "Done."
    assert (await client.responses.retrieve(made.id)).output[-1].type == "message"


async def test_of_responses_to_one_at_once_each_follows_it_alone(client, server):
    first = await create(client, [says("One.")])
    following: list[Any] = []

    async def follow(number):
        options = {"previous_response_id": first.id, "input": scripted([says(f"{number}.")])}
        patient = client.with_options(max_retries=10)
        following.append(await patient.responses.create(model="lorem", **options))

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(follow, number)
    for response in following:
        _, session = await server.get(f"/sessions/{response.mochi['session_id']}")
        said = [each["content"] for each in session["messages"] if each["role"] == "assistant"]
        assert said == ["One.", response.output_text]


async def test_a_forced_tool_is_called(client):
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{**NAMED, "name": "weather"}]}
    for choice in ("required", {**NAMED, "name": "weather"}, allowed):
        made = await client.responses.create(
            model="lorem", input="How is the weather?", tools=[WEATHER], tool_choice=choice
        )
        [wanted] = made.output
        assert (wanted.type, wanted.arguments) == ("function_call", '{"city":"Lorem ipsum"}')
