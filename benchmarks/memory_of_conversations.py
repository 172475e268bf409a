"""What a small model still knows after 60 turns: ``memory_of_conversations.py FILE.gguf``.

Sixty turns about a made-up project go through the room that a window of 4,096 tokens has. Eight
facts are told in the first ten turns and asked for at the end, each in a copy of the conversation.
The built-in provider runs the file, which is anybody's own. Takes about half an hour on two cores.
Exits 1 when a bar is missed; ``--without`` switches the summaries off, to see what there is then.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parent.parent))

from mochi_server import Runtime
from mochi_server.config import load_settings
from mochi_server.protocol.options import ModelOptions
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.sessions.fork import fork_session

ROOM = 4096 - 1024
"""Tokens of history that a window of 4,096 has room for."""
TURNS = 60
BARS = {"summary": 7, "answers": 5}
"""Least number of facts that the summary has, and that are answered."""
SYSTEM = "You help with a software project. Answer in one short sentence."


@dataclass(frozen=True)
class Fact:
    """Something that the user says early, and what is asked at the end."""

    told: str
    question: str
    answer: str


FACTS = (
    Fact(
        "We are building a service that we call Marmalade. It sorts the letters of a small town "
        "archive.",
        "What is our service called?",
        "marmalade",
    ),
    Fact(
        "The database listens on port 5477, not on the usual one. Please remember that.",
        "On which port does our database listen?",
        "5477",
    ),
    Fact(
        "The customer is Odalys Brandt; she decides about everything that costs money.",
        "What is the name of our customer?",
        "brandt",
    ),
    Fact(
        "We decided to deploy on Thursdays only, after the archive has closed.",
        "On which day of the week do we deploy?",
        "thursday",
    ),
    Fact(
        "The scans are in the folder /srv/kestrel/scans and must never be moved.",
        "In which folder are the scans?",
        "/srv/kestrel/scans",
    ),
    Fact(
        "The budget for the first phase is 18400 euros.",
        "How many euros is the budget for the first phase?",
        "18400",
    ),
    Fact(
        "From now on write every date like 2031-04-09, never with a month's name.",
        "In which form do I want dates to be written?",
        "2031-04-09",
    ),
    Fact(
        "It is still open whether we use RabbitMQ or a table of the database for the queue.",
        "Between what do we still have to choose for the queue?",
        "rabbitmq",
    ),
)
THEMES = (
    "the upload form", "the list of letters", "the search for names", "the export to a table",
    "the login of the volunteers", "the preview of a scan", "the colours of the labels",
    "the help texts", "the printed report", "the backup",
)  # fmt: skip
FILLERS = (
    """Today I looked at {theme}. It works, but it feels slow when there are many entries, and one
    of the volunteers found the wording odd. What would you look at first?""",
    """About {theme} again: I tried two ways, and the simpler one seems good enough for now. Name
    one risk that I may have missed with it.""",
    """A volunteer asked whether {theme} could be used with the keyboard alone. I think that this
    is a small change. What would you test afterwards?""",
    """I cleaned up the code of {theme} a little and wrote two tests for it. Both pass, and nothing
    else has changed. Say in a few words what a third test could be.""",
    """Please suggest a short title for the change that makes {theme} easier to read for people who
    see it for the first time.""",
)


def questions() -> list[str]:
    """Return what the user says: eight facts in the first ten turns, then other things."""
    said = [fact.told for fact in FACTS]
    for number in (3, 7, *range(10, TURNS)):
        text = FILLERS[number % len(FILLERS)].format(theme=THEMES[number * 7 % len(THEMES)])
        said.insert(number, " ".join(text.split()))
    return said


async def say(runtime: Runtime, session_id: str, text: str) -> str:
    """Run a turn and return the answer, when all summaries are made."""
    answer = await runtime.chat.complete(session_id, TurnRequest(message=text))
    await runtime.runs.wait_closed(60)
    while runtime.compaction.pending:  # noqa: ASYNC110 - it is no event
        await anyio.sleep(0.2)
    message = answer["message"]
    assert isinstance(message, dict)
    return str(message["content"])


async def measure(file: Path, *, compaction: bool, verbose: bool) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        models.mkdir()
        shutil.copy(file, models / file.name)
        settings = load_settings(
            data_dir=Path(folder) / "data",
            models_dir=models,
            summarization_enabled=False,
            summarization_interval_seconds=0,
            compaction=compaction,
            max_history_tokens=ROOM,
        )
        settings.data_dir.mkdir()
        async with Runtime(settings) as runtime:
            listed = await runtime.models.list_models()
            model = next(each.name for each in listed.models if file.stem in each.name)
            options = ModelOptions(seed=1, temperature=0.2, max_tokens=60)
            session = await runtime.sessions.create(model, system_prompt=SYSTEM, options=options)
            begun = time.monotonic()
            for number, text in enumerate(questions(), start=1):
                answer = await say(runtime, session.session_id, text)
                if verbose:
                    print(f"{number} [{time.monotonic() - begun:.0f} s] {text}\n  {answer}")
            session = await runtime.sessions.get(session.session_id)
            summary = session.metadata.history_summary
            notes = "" if summary is None else summary.text
            if verbose:
                print(notes)
            noted = answered = 0
            for fact in FACTS:
                copy = await fork_session(runtime.sessions, runtime.attachments, session.session_id)
                answer = await say(runtime, copy.session_id, fact.question)
                noted += (in_notes := fact.answer in notes.casefold())
                answered += (is_right := fact.answer in answer.casefold())
                print(f"{in_notes!s:5} {is_right!s:5} {fact.question} {answer!r}", flush=True)
    print(f"{file.name}: {noted} of {len(FACTS)} in the summary, {answered} answered")
    return noted >= BARS["summary"] and answered >= BARS["answers"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--without", action="store_true", help="Make no summaries.")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    met = asyncio.run(
        measure(arguments.file, compaction=not arguments.without, verbose=arguments.verbose)
    )
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
