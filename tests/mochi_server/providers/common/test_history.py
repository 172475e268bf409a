"""What sessions hold of other models, of crashes and of old writers: every vendor must take it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mochi_server.protocol.messages import ToolCall
from mochi_server.providers.base import Chunk, ContentDelta
from tests.support.exact_vendors import chunks_of
from tests.support.model_services import Anthropic, Gemini, OpenAI, Service


class StrictTemplate(OpenAI):
    """A server of one's own, whose model has a chat template that refuses much."""

    model = "ministral-test"

    async def open(self, stack: AsyncExitStack) -> None:
        await super().open(stack)
        self.fake.template = True


VENDORS: dict[str, type[Service]] = {
    "openai": OpenAI,
    "template": StrictTemplate,
    "anthropic": Anthropic,
    "gemini": Gemini,
}


@pytest.fixture(params=VENDORS)
async def service(request: pytest.FixtureRequest) -> AsyncIterator[Service]:
    async with AsyncExitStack() as stack:
        found = VENDORS[request.param]()
        await found.start(stack)
        yield found


async def reply(service: Service, messages: list[dict[str, Any]], **fields: Any) -> list[Chunk]:
    return await chunks_of(service.provider, model=service.model, messages=messages, **fields)


def user(text: str = "Hello") -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str | None, *calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    fields = {"model": "other/model", **fields}
    return {"role": "assistant", "content": text, "tool_calls": list(calls) or None, **fields}


def call(name: str, call_id: str | None = "call_1", arguments: Any = None) -> dict[str, Any]:
    function = {"function": {"name": name, "arguments": {} if arguments is None else arguments}}
    return {**function, "id": call_id} if call_id else function


def result(name: str, call_id: str | None = "call_1", text: str = "1") -> dict[str, Any]:
    found = {"role": "tool", "tool_name": name, "content": text}
    return {**found, "tool_call_id": call_id} if call_id else found


HISTORIES: dict[str, list[dict[str, Any]]] = {
    "a call whose process died": [user(), said("", call("add")), user()],
    "one result of two": [
        user(), said("", call("add", "a"), call("now", "b")), result("now", "b"), user()],
    "a result without its call": [user(), result("add"), said("Hi."), user()],
    "a result that came twice": [
        user(), said("", call("add")), result("add"), result("add"), said("1"), user()],
    "two questions after a failed turn": [user(), user("Hello?"), said("Hi."), user()],
    "a plan and its work, as agents have it": [
        user(), said("First I add."), said("So:", call("add")), result("add"), user("Go on.")],
    "a reply first": [said("Hi."), user()],
    "a call first": [said("", call("add")), result("add"), user()],
    "a reply of nothing but thoughts": [
        user(), said("", thinking="Hm.", interrupted=True), user()],
    "a reply of blanks": [user(), said(" \n"), user()],
    "no content at all": [user(), said(None), user()],
    "names that no vendor takes": [
        user(),
        said("", call("functions.add", "a"), call("größe", "b"), call("", "c"),
             call("x" * 200, "d"), call("9lives", "e")),
        *(result("?", each) for each in "abcde"), said("1"), user()],
    "ids of other vendors": [
        user(),
        said("", call("add", "functions.add:0"), call("add", "i" * 200), call("add", "a:0"),
             call("add", "a.0")),
        result("add", "a.0"), result("add", "i" * 200), result("add", "functions.add:0"),
        result("add", "a:0"), said("1"), user()],
    "ids that begin anew with each reply": [
        user(), said("", call("add", "0")), result("add", "0"),
        said("", call("add", "0")), result("add", "0"), said("2"), user()],
    "no ids": [
        user(), said("", call("add", None, '{"x": 1}'), call("now", None)), result("now", None),
        result("add", None, ""), said("1"), user()],
    "arguments as text": [
        user(), said("", call("add", "a", '{"x": 1}'), call("add", "b", "{oops"),
                     call("add", "c", "[1]")),
        *(result("add", each) for each in "abc"), said("1"), user()],
    "a system prompt in the midst": [
        user(), said("Hi."), {"role": "system", "content": "Be kind."}, user()],
}  # fmt: skip


@pytest.mark.parametrize("history", HISTORIES)
async def test_what_a_session_may_hold_is_taken(service: Service, history: str) -> None:
    for think in (False, True):
        service.says([], ["Yes."])
        chunks = await reply(service, HISTORIES[history], think=think)
        assert chunks[0] == ContentDelta("Yes.")


@pytest.mark.parametrize("form", ["anthropic", "gemini"])
async def test_data_beside_a_reply_that_does_not_fit_it_is_not_used(
    service: Service, form: str
) -> None:
    data = {"form": form, "model": service.model, "parts": [{"kind": "text", "length": 99}]}
    service.says([], ["Yes."])
    chunks = await reply(service, [user(), said("Hi", provider_data=data), user()], think=True)
    assert chunks[0] == ContentDelta("Yes.")


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "", "parameters": {
        "type": "object", "properties": {}, "required": []}}}  # fmt: skip


async def test_tools_of_any_name_are_offered_and_called_by_it(service: Service) -> None:
    names = ["größe", "grüße", "add", "x" * 150 + "1", "x" * 150 + "2"]
    service.says([], ["Yes."])
    await reply(service, [user()], tools=[tool(name) for name in names])
    offered = service.offered()
    assert len(set(offered)) == len(names)
    service.says([], [], [(name, {}) for name in offered])
    chunks = await reply(service, [user()], tools=[tool(name) for name in names])
    assert [chunk.name for chunk in chunks if isinstance(chunk, ToolCall)] == names


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object"}, {"type": None, "properties": None}, None]
)
async def test_a_tool_without_parameters_is_offered_in_any_form(
    service: Service, schema: dict[str, Any] | None
) -> None:
    """Tools of other sources than ours may have no properties."""
    function = {"name": "now", "description": "The time.", "parameters": schema}
    service.says([], [], [("now", {})])
    chunks = await reply(service, [user()], tools=[{"type": "function", "function": function}])
    assert [chunk.name for chunk in chunks if isinstance(chunk, ToolCall)] == ["now"]


def text_property() -> dict[str, Any]:
    return {"type": "string", "description": "A text."}


BOTH = {"content": text_property(), "url": text_property()}
CONTENT, URL = ({"properties": {n: text_property()}, "required": [n]} for n in BOTH)
ALTERNATIVES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "objects": ({"type": "object", "anyOf": [CONTENT, URL]}, []),
    "what goes together": (
        {"type": "object", "properties": BOTH, "required": ["url"],
         "oneOf": [{"required": ["content"]}, {"required": ["url"]}]}, ["url"]),
    "parts": ({"allOf": [CONTENT, {"properties": {"url": text_property()}}]}, ["content"]),
    "references": (
        {"type": "object", "anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
         "$defs": {"a": CONTENT, "b": {"allOf": [CONTENT, URL]}}}, ["content"]),
}  # fmt: skip


def schema_in(request: Any) -> dict[str, Any]:
    """The only one of a request."""
    if isinstance(request, dict) and set(request.get("properties", ())) == set(BOTH):
        return request
    inner = request.values() if isinstance(request, dict) else request
    nested = (schema_in(one) for one in inner if isinstance(one, (dict, list)))
    return next(filter(None, nested), {})


@pytest.mark.parametrize("kind", ALTERNATIVES)
async def test_alternatives_of_a_tools_arguments_are_offered_as_one_object(
    service: Service, kind: str
) -> None:
    """Tools of other sources have some; Anthropic and OpenAI would refuse every request."""
    schema, required = ALTERNATIVES[kind]
    function = {"name": "attach", "description": "Attaches.", "parameters": schema}
    service.says([], ["Yes."])
    await reply(service, [user()], tools=[{"type": "function", "function": function}])
    offered = schema_in(service.last_request())
    assert offered["type"] == "object"
    assert offered["properties"] == BOTH
    assert offered.get("required", []) == required


async def test_a_property_may_differ_between_alternatives(service: Service) -> None:
    kinds = [{"const": "content"}, {"const": "url"}]
    parts = [{"properties": {"content": one, "url": text_property()}} for one in kinds]
    function = {"name": "attach", "description": "", "parameters": {"anyOf": parts}}
    service.says([], ["Yes."])
    await reply(service, [user()], tools=[{"type": "function", "function": function}])
    assert schema_in(service.last_request())["properties"]["content"] == {"anyOf": kinds}
