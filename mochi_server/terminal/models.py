"""``mochi-server models``: the models that can answer."""

from __future__ import annotations

import sys
from typing import Any

from .ask import NothingThere, print_json, print_text
from .client import Client, safe_text


async def print_models(client: Client, *, as_json: bool) -> None:
    """Print the models that can answer, the first one first, or the response of the server.

    Raises:
        NothingThere: The server has none.
        RequestRefused: It refuses, or no provider answers.
        ServerUnreachable: It does not answer.
    """
    answer = await client.request("GET", "/models")
    if as_json:
        print_json(answer)
        return
    for problem in answer["problems"]:
        sys.stderr.write(safe_text(f"{problem['provider']}: {problem['message']}") + "\n")
    if not answer["models"]:
        raise NothingThere("The server has no model.")
    rows = [("MODEL", "PROVIDER", "CONTEXT", "CAN"), *map(_row, answer["models"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print_text("  ".join(cells).rstrip() + "\n")


def _row(model: dict[str, Any]) -> tuple[str, str, str, str]:
    can = [name for name in model["capabilities"] or () if name != "completion"]
    context = model["context_length"]
    return (
        safe_text(model["name"]),
        model["provider"],
        "-" if context is None else f"{context:,}",
        ", ".join(can) or "-",
    )
