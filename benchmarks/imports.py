"""Memory and time of imports: ``python benchmarks/imports.py [--quick] [--mb MB]``.

Exports of two sizes are generated for each format, and imported by the command, each into an empty
folder. The peak of the memory must not depend on the size of the file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from search import Author

ROOT = Path(__file__).parent.parent
MESSAGES = 40
"""Of one conversation, about 60 kB."""
MB = 1_000_000
SMALL = 40
"""MB of the small files: with less, the cache of sessions is not full."""
MOST_GROWTH = 1.25
"""How much larger the peak of the large file may be."""


def texts(size: int) -> Iterator[list[str]]:
    """Yield the texts of conversations, of so many bytes in total."""
    author = Author()
    while size > 0:
        conversation = [author.text(number, 1_500) for number in range(1, MESSAGES + 1)]
        size -= sum(len(text.encode()) for text in conversation) + 300 * MESSAGES
        yield conversation


def chatgpt(number: int, said: list[str]) -> dict[str, object]:
    mapping: dict[str, object] = {"root": {"id": "root", "parent": None, "message": None}}
    before = "root"
    for index, text in enumerate(said):
        key = f"{number}-{index}"
        message = {
            "author": {"role": "assistant" if index % 2 else "user", "metadata": {}},
            "create_time": 1.7e9 + index,
            "content": {"content_type": "text", "parts": [text]},
            "metadata": {"model_slug": "gpt-5", "request_id": key},
            "recipient": "all",
        }
        mapping[key] = {"id": key, "parent": before, "children": [], "message": message}
        before = key
    return {
        "conversation_id": str(number), "title": said[0][:30], "mapping": mapping,
        "current_node": before, "create_time": 1.7e9, "update_time": 1.7e9,
    }  # fmt: skip


def write_list(path: Path, size: int) -> None:
    with path.open("w") as file:
        for number, said in enumerate(texts(size)):
            file.write(",\n" if number else "[")
            json.dump(chatgpt(number, said), file)
        file.write("]")


def write_archive(path: Path, size: int) -> None:
    plain = path.with_suffix(".json")
    write_list(plain, size)
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.write(plain, "conversations.json")
    plain.unlink()


def write_lines(path: Path, size: int) -> None:
    with path.open("w") as file:
        for said in texts(size):
            messages = [
                {"role": "assistant" if index % 2 else "user", "content": text}
                for index, text in enumerate(said)
            ]
            file.write(json.dumps({"messages": messages}) + "\n")


def write_database(path: Path, size: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE conversations (id TEXT, name TEXT, model TEXT)")
        connection.execute(
            "CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, response TEXT, "
            "conversation_id TEXT, datetime_utc TEXT)"
        )
        for number, said in enumerate(texts(size)):
            rows = [
                (f"{number}-{index:03}", "m", said[index], said[index + 1], str(number), None)
                for index in range(0, len(said), 2)
            ]
            connection.executemany("INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?)", rows)
        connection.commit()


FORMATS: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    "ChatGPT, JSON": ("conversations.json", write_list),
    "ChatGPT, zip": ("export.zip", write_archive),
    "training lines": ("lines.jsonl", write_lines),
    "llm, database": ("logs.db", write_database),
}


def measure(path: Path, data: Path) -> tuple[float, float, int]:
    """Import a file; return seconds, the peak of the memory in MB, and how many sessions."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MOCHI_")}
    command = [sys.executable, "-m", "mochi_server", "--data-dir", str(data)]
    begin = time.perf_counter()
    child = subprocess.Popen(
        [*command, "sessions", "import", str(path)], cwd=ROOT, env=kept, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdout is not None
    child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"the import of {path.name} failed")
    seconds = time.perf_counter() - begin
    sessions = len([*(data / "chat_sessions").glob("*.json")])
    return seconds, usage.ru_maxrss * 1024 / MB, sessions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Large files of 120 MB.")
    parser.add_argument("--mb", type=int, default=300, help="Size of the large files.")
    options = parser.parse_args()
    large = 120 if options.quick else options.mb
    failed = False
    print("| format | MB | sessions | seconds | MB/s | peak MB |\n|---|---|---|---|---|---|")
    for name, (file_name, write) in FORMATS.items():
        peaks = []
        for size in (SMALL, large):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / file_name
                write(path, size * MB)
                seconds, peak, sessions = measure(path, Path(folder) / "data")
                shutil.rmtree(Path(folder) / "data")
            peaks.append(peak)
            speed = size / seconds
            row = (name, size, f"{sessions:,}", f"{seconds:.1f}", f"{speed:.0f}", f"{peak:.0f}")
            print("|", " | ".join(map(str, row)), "|", flush=True)
        failed = failed or peaks[1] > MOST_GROWTH * peaks[0]
    print(
        "The memory grows with the file." if failed else "The memory does not grow with the file."
    )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
