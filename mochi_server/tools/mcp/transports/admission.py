"""Results of servers in a form that the SDK accepts, whatever single parts of them are.

The SDK refuses a whole result for one part that is not as the protocol says, and makes an object
of each part, which holds the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from mcp_types import ContentBlock, Prompt, Resource, ResourceTemplate, Tool
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from ..descriptions import SCHEMA, UNUSABLE
from ..failures import first_problems

MAX_BLOCKS: Final = 500
"""Blocks of one result that are kept, where adjacent texts are one."""
MAX_ODD_BLOCK: Final = 2_000
"""Characters that are shown of a block that is none of the protocol."""
LEFT_OUT: Final = "[{count:,} more blocks are left out]"

_BLOCK: Final[TypeAdapter[Any]] = TypeAdapter(ContentBlock)
_LISTED: Final[dict[str, type[BaseModel]]] = {
    "prompts": Prompt,
    "resources": Resource,
    "resourceTemplates": ResourceTemplate,
}
_LISTS: Final = frozenset({"tools", "content", "contents", "messages", *_LISTED})
_OF_EMPTY_CALLS: Final = frozenset({"structuredContent", "isError", "_meta", "resultType"})


def admit(result: Any) -> None:  # noqa: ANN401 - JSON
    """Change a result in place so that the SDK accepts it.

    A null for a list, as Go has for an empty one, is an empty list. What cannot be used of a list
    is left out, or stands in it with the reason.
    """
    if not isinstance(result, dict):
        return
    for key in result.keys() & _LISTS:
        if result[key] is None:
            result[key] = []
    if isinstance(result.get("tools"), list):
        result["tools"] = [_tool(each) for each in result["tools"]]
    for key, model in _LISTED.items():
        if isinstance(result.get(key), list):
            result[key] = [each for each in result[key] if _problem(model, each) is None]
    if isinstance(result.get("messages"), list):
        result["messages"] = [_message(each) for each in result["messages"]]
    if result.keys() <= _OF_EMPTY_CALLS:  # nothing else has these
        result["content"] = []
    admit_content(result)


def _tool(tool: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a tool that does not cost the whole list.

    Its output schema is dropped: the SDK would check results with it in the event loop, with
    whatever regular expressions the server wrote. Its input schema is read by us alone. A tool that
    the SDK would refuse is replaced by a stand-in with the reason.
    """
    admitted = tool
    if isinstance(tool, dict):
        admitted = {key: tool[key] for key in tool.keys() - {"outputSchema", "icons"}}
        schema, meta = tool.get("inputSchema"), tool.get("_meta")
        admitted["inputSchema"] = {"type": "object", "properties": _properties(schema)}
        admitted["_meta"] = {**(meta if isinstance(meta, dict) else {}), SCHEMA: schema}
    reason = _problem(Tool, admitted)
    if reason is None:
        return admitted
    name = tool.get("name") if isinstance(tool, dict) else None
    return {
        "name": name if isinstance(name, str) else "?",
        "inputSchema": {"type": "object"},
        "_meta": {UNUSABLE: reason},
    }


def _message(message: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a message of a prompt whose content is a block of the protocol."""
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    block = _text(content) if isinstance(content, str) else _admitted_block(content)
    return {**message, "content": block}


def _properties(schema: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return the properties that are schemas, from which the SDK reads what becomes headers."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {name: each for name, each in properties.items() if isinstance(each, dict)}


def _problem(model: type[BaseModel], value: Any) -> str | None:  # noqa: ANN401 - JSON
    try:
        model.model_validate(value, by_name=False)
    except ValidationError as error:
        return first_problems(error)
    return None


def admit_content(result: Any) -> None:  # noqa: ANN401 - JSON
    """Change the blocks of a result in place so that the SDK accepts them, and soon."""
    if not isinstance(result, dict) or not isinstance(result.get("content"), list):
        return
    if result.get("isError", False) is None:
        del result["isError"]
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):  # as before 2026 it had to be
        del result["structuredContent"]
        if not result["content"]:
            result["content"] = [_text(to_json(structured).decode())]
    joined = _joined(result["content"])
    blocks = [_admitted_block(each) for each in islice(joined, MAX_BLOCKS)]
    left_out = sum(1 for _ in joined)
    result["content"] = [*blocks, _text(LEFT_OUT.format(count=left_out))] if left_out else blocks


def _joined(blocks: list[Any]) -> Iterator[Any]:
    """Yield the blocks, adjacent texts as one."""
    texts: list[str] = []
    for block in blocks:
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str) and block.get("type") == "text":
            texts.append(text)
            continue
        if texts:
            yield _text("\n".join(texts))
            texts = []
        yield block
    if texts:
        yield _text("\n".join(texts))


def _admitted_block(block: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    try:
        _BLOCK.validate_python(block, by_name=False)
    except ValidationError:
        return _text(to_json(block).decode()[:MAX_ODD_BLOCK])
    admitted: dict[str, Any] = block
    return admitted


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
