"""A small front end: reads lines of a person, shows the answers as they come.

With `mochi-server --test` running: python front_end.py http://127.0.0.1:5099
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

MODEL = "lorem"


def post(url: str, body: dict[str, Any]) -> Any:
    """The response to a JSON body."""
    headers = {"Content-Type": "application/json"}
    return urlopen(Request(url, json.dumps(body).encode(), headers), timeout=60)


def events(url: str, message: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and data of each event of a turn."""
    name = ""
    with post(url, {"message": message}) as response:
        for line in response:
            key, _, value = line.decode().rstrip("\n").partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                yield name, json.loads(value)


def main(server: str) -> None:
    """Talk until there are no more lines."""
    api = f"{server}/api/v1"
    with post(f"{api}/sessions", {"model": MODEL}) as response:
        session = json.load(response)["session_id"]
    for line in sys.stdin:
        for name, data in events(f"{api}/chat/{session}/stream", line.rstrip("\n")):
            if name == "content_delta":
                print(data["content"], end="", flush=True)
            elif name == "error":
                print(f"\nSorry, that did not work: {data['message']}", end="")
        print()


if __name__ == "__main__":
    main(sys.argv[1])
