"""An MCP server that asks while its tools run, made with the SDK: 2026 and before."""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.context import Context
from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
from mcp.types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("asking")


class Journey(BaseModel):
    """Where to."""

    city: str
    nights: int = 1


async def ask_person() -> Elicit[Journey]:
    return Elicit("Where to?", Journey)


async def ask_model() -> Sample:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="Name a city."))
    return Sample([message], max_tokens=20, system_prompt="Be brief.")


@server.tool()
async def book(hotel: str, journey: Annotated[Journey, Resolve(ask_person)]) -> str:
    """Book a journey."""
    return f"{hotel} in {journey.city} for {journey.nights}"


@server.tool()
async def suggest(said: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    """Suggest a city."""
    assert isinstance(said.content, TextContent)
    return f"{said.model} says {said.content.text}"


@server.tool()
async def suggest_and_book(
    said: Annotated[CreateMessageResult, Resolve(ask_model)],
    journey: Annotated[Journey, Resolve(ask_person)],
) -> str:
    """Suggest a city, and book a journey."""
    return f"{said.model}: {journey.city}"


@server.tool()
async def login(ctx: Context) -> str:  # type: ignore[type-arg]
    """Open a page; only servers before 2026 can do it in the midst of a call."""
    result = await ctx.elicit_url("Log in.", "https://example.com/login", "e1")
    return result.action


if __name__ == "__main__":
    server.run("stdio")
