"""What small models do with tools: ``python benchmarks/small_models.py FILE.gguf …``.

Each file is run by the built-in provider, or each model of an Ollama (``--ollama URL NAME …``) by
that, with the tools that ``mochi-server init`` writes: tasks that need a tool, tasks that need
none, and questions whose answer is a text that looks like a call. Takes some minutes a model on two
cores. The files are anybody's own. Exits 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp
import anyio

sys.path.insert(0, str(Path(__file__).parent.parent))

from mochi_server.server.initialise import run_init
from tests.support.server import Server, running_server

TASKS = {
    "How many kilometres are 26.2 miles?": "convert_units",
    "What time is it now in Tokyo?": "current_time",
    "What is 17.5% of 2340? Use the calculator.": "calculate",
    "How many days are there between 2026-01-15 and 2026-11-26?": "days_between",
    "Roll two dice with six sides.": "roll_dice",
    "Convert 100 degrees Fahrenheit to Celsius.": "convert_units",
    "Calculate (123 + 456) * 789.": "calculate",
    "Which date is 90 days after 2026-03-01?": "add_to_date",
    "Sort these lines: pear\napple\nfig": "sort_lines",
    "Choose one of pizza, pasta and salad for me at random.": "choose",
}
"""The tool that the task needs, by what a person writes."""
CHATS = ("What is the capital of France? One word.", "Write one sentence about the sea.")
TEXTS = (
    "Show me an example of a JSON object with a person's name and age.",
    "Explain in two sentences what a tool call of a language model is.",
    "Write a Python function that adds two numbers.",
    "Write a short poem in which each line stands in braces.",
    "Show me how a tool call looks in JSON, as an example that I can put into my documentation.",
    "Give an example of a JSON list with three fruits, and explain it.",
    'What does {"name": "convert_units"} mean? Explain it in words.',
    "Write a shell command that lists all files.",
)
"""Questions whose answers are texts, whatever they look like."""
BARS = {"ran": 0.8, "raw": 0, "wrong": 0}
"""Least share of tasks whose tool ran; most answers that show a call; most texts that ran."""
SECONDS = 1800
"""For the answer to one question, on a machine that is busy."""
TOLD = ("tool_name", "arguments", "result", "error_message", "message")


@dataclass
class Outcome:
    """What became of one question."""

    ran: list[str] = field(default_factory=list)
    events: list[object] = field(default_factory=list)
    """What was called, with which results, and errors."""
    texts: list[str] = field(default_factory=list)

    def shows_call(self, names: set[str]) -> bool:
        """Whether a person sees a call as text."""
        return any(
            name in text
            and ('"arguments"' in text or '"parameters"' in text or "<function" in text)
            for text in self.texts
            for name in names
        )


async def ask(server: Server, model: str, question: str, seed: int) -> Outcome:
    session = await server.new_session(
        model=model,
        tool_settings={"tools": TOOLS, "execution_policy": "never_confirm"},
        options={"seed": seed},
    )
    outcome = Outcome()
    with anyio.fail_after(SECONDS):
        stream = server.stream(
            f"/chat/{session}/stream", {"message": question}, timeout=aiohttp.ClientTimeout()
        )
        async for event in stream:
            if event.event in {"tool_call", "tool_result", "error"}:
                outcome.events.append(
                    {key: event.data.get(key) for key in TOLD if event.data.get(key)}
                )
            if event.event == "tool_result" and event.data["success"]:
                outcome.ran.append(event.data["tool_name"])
            if event.event == "tool_call_confirmation_required":
                outcome.ran.append(f"asked: {event.data['tool_name']}")
    status, body = await server.get(f"/sessions/{session}")
    assert status == 200, body
    outcome.texts = [each["content"] for each in body["messages"] if each["role"] == "assistant"]
    return outcome


TOOLS: list[str] = sorted({*TASKS.values(), "convert_time", "shuffle", "count_text", "format_json"})


@asynccontextmanager
async def serving(given: str, ollama: str | None) -> AsyncIterator[tuple[Server, str]]:
    """A server with the example tools, and what it calls this model."""
    with tempfile.TemporaryDirectory() as folder:
        models, data = Path(folder) / "models", Path(folder) / "data"
        models.mkdir()
        run_init(data, lambda _: None)
        if ollama is None:
            shutil.copy(given, models)
        async with running_server(data_dir=data, models_dir=models, ollama=ollama) as server:
            yield server, given if ollama else await local_model(server, Path(given))


async def measure(given: str, ollama: str | None, *, seed: int, texts: Path | None) -> bool:
    """Ask a model everything; return whether its bars are met."""
    ran = wrong = raw = 0
    async with serving(given, ollama) as (server, model):
        for question in (*TASKS, *CHATS, *TEXTS):
            outcome = await ask(server, model, question, seed)
            if texts:
                row = {"model": given, "seed": seed, "question": question, **asdict(outcome)}
                with texts.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            if question in TEXTS:
                wrong += bool(outcome.ran)
            else:
                ran += TASKS.get(question) in outcome.ran
                raw += outcome.shows_call({*TOOLS})
    print(f"{given}: ran {ran} of {len(TASKS)}, raw calls shown {raw}, texts that ran {wrong}")
    return ran >= BARS["ran"] * len(TASKS) and raw <= BARS["raw"] and wrong <= BARS["wrong"]


async def local_model(server: Server, file: Path) -> str:
    status, body = await server.get("/models")
    assert status == 200, body
    names = [each["name"] for each in body["models"]]
    return next(name for name in names if file.stem in name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", help="GGUF files, or names of an Ollama's models")
    parser.add_argument("--ollama", metavar="URL")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", metavar="FILE", type=Path, help="append all calls and texts")
    given = parser.parse_args()
    met = [
        asyncio.run(measure(each, given.ollama, seed=given.seed, texts=given.verbose))
        for each in given.models
    ]
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
