"""An MCP server on the bare wire: it starts in an instant, and does what a test wants, also wrong.

Its behaviour is a JSON object in a file, its only argument, which is read anew for each message::

    {"tools": [{"name", "description", "inputSchema", "annotations"}],   # tools/list
     "prompts": [{"name", "description", "arguments"}] | "hang",         # prompts/list
     "resources": [{"uri", "name"}], "templates": [{"uriTemplate", "name"}],
     "texts": {"prompt or uri": "…"}, "results": {"prompt or uri": {…}},  # get, read
     "calls": {"name": {"text": "…"} | {"error": "…"} | {"result": {…}} | {"do": "…"}},
     "start": "hang" | "rubbish" | "exit", "pages": 2, "version": "2025-06-18"}

What it is sent and when it starts is in ``{file}.log``, one JSON object on each line.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOREVER = 3600


class WireServer:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._responses: queue.Queue[dict[str, Any]] = queue.Queue()

    @property
    def plan(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._file.read_text())
        return found

    def note(self, **what: Any) -> None:
        with self._lock, Path(f"{self._file}.log").open("a") as log:
            log.write(json.dumps({**what, "pid": os.getpid()}) + "\n")

    def send(self, message: dict[str, Any] | str) -> None:
        text = message if isinstance(message, str) else json.dumps({"jsonrpc": "2.0", **message})
        with self._lock:
            sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass") + b"\n")
            sys.stdout.buffer.flush()

    def run(self) -> None:
        self.note(event="start", cwd=str(Path.cwd()), env=sorted(os.environ))
        complain("I am up")
        begin = self.plan.get("start")
        if begin == "exit":
            complain("no, I am not")
            sys.exit(3)
        if begin == "hang":
            time.sleep(FOREVER)
        if begin == "rubbish":
            for number in range(20_000):
                sys.stdout.write(f"Welcome to the machine {number}!\n")
            sys.stdout.flush()
        for line in sys.stdin:
            message = json.loads(line)
            self.note(**message)
            if "id" in message and "method" in message:
                threading.Thread(target=self.answer, args=(message,), daemon=True).start()
            elif "id" in message:
                self._responses.put(message)
        if self.plan.get("stays"):  # although its input has ended
            time.sleep(FOREVER)

    def answer(self, message: dict[str, Any]) -> None:
        params = message.get("params") or {}
        if message["method"] == "initialize":
            result = {
                "protocolVersion": self.plan.get("version", "2025-06-18"),
                "capabilities": {
                    "tools": {"listChanged": True},
                    **({"prompts": {"listChanged": True}} if "prompts" in self.plan else {}),
                    **({"resources": {}} if "resources" in self.plan else {}),
                },
                "serverInfo": {"name": "wire", "version": "1"},
            }
        elif message["method"] == "tools/list":
            result = self.page(params.get("cursor"))
        elif message["method"] == "tools/call":
            self.call(message["id"], params)
            return
        elif (found := self.offered(message["method"], params)) is not None:
            result = found
        elif message["method"] in ("prompts/get", "resources/read"):
            error = {"code": -32602, "message": "there is no such thing"}
            self.send({"id": message["id"], "error": error})
            return
        else:
            error = {"code": -32601, "message": "Method not found"}
            self.send({"id": message["id"], "error": error})
            return
        self.send({"id": message["id"], "result": result})

    def offered(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """What it says of its prompts and resources; None: nothing."""
        found: dict[str, Any] | None = None
        match method:
            case "prompts/list":
                found = {"prompts": self.plan.get("prompts", [])}
            case "resources/list":
                found = self.resources(int(params.get("cursor") or 0))
            case "resources/templates/list":
                found = {"resourceTemplates": self.plan.get("templates", [])}
            case "prompts/get" if (text := self.text(params["name"])) is not None:
                content = {"type": "text", "text": text.format(**params.get("arguments") or {})}
                found = {"messages": [{"role": "user", "content": content}]}
            case "resources/read" if (text := self.text(params["uri"])) is not None:
                found = {"contents": [{"uri": params["uri"], "text": text}]}
        results: dict[str, Any] = self.plan.get("results", {})
        found = results.get(params.get("name") or params.get("uri") or "", found)
        if found is not None and "hang" in found.values():
            time.sleep(FOREVER)
        return found

    def text(self, name: str) -> str | None:
        text: str | None = self.plan.get("texts", {}).get(name)
        return text

    def resources(self, at: int) -> dict[str, Any]:
        resources = self.plan.get("resources", [])
        if self.plan.get("pages", 1) == 1:
            return {"resources": resources}
        more = {"nextCursor": str(at + 1)} if at + 1 < len(resources) else {}
        return {"resources": resources[at : at + 1], **more}

    def page(self, cursor: str | None) -> dict[str, Any]:
        tools, count = self.plan.get("tools", []), self.plan.get("pages", 1)
        if tools is None:
            return {"tools": None}
        at = int(cursor or 0)
        size = -(-len(tools) // count)
        page: dict[str, Any] = {"tools": tools[at * size : (at + 1) * size]}
        if self.plan.get("endless"):
            return {"tools": tools, "nextCursor": str(at + 1)}
        return page | ({"nextCursor": str(at + 1)} if at + 1 < count else {})

    def call(self, number: int, params: dict[str, Any]) -> None:
        match self.plan.get("calls", {}).get(params["name"], {}):
            case {"text": text}:
                result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
            case {"error": text}:
                result = {"content": [{"type": "text", "text": text}], "isError": True}
            case {"result": result}:
                pass
            case {"raw": text}:
                self.send(text.replace("ID", str(number)))
                return
            case {"do": what, **how}:
                self.do(what, number, params, how)
                return
            case _:
                arguments = json.dumps(params.get("arguments"))
                result = {"content": [{"type": "text", "text": arguments}]}
        self.send({"id": number, "result": result})

    def do(self, what: str, number: int, params: dict[str, Any], how: dict[str, Any]) -> None:
        text = getattr(self, f"do_{what}")(params, **how)
        response = {"result": {"content": [{"type": "text", "text": text or "{}"}]}}
        if how.get("id_last"):
            self.send(json.dumps({**response, "jsonrpc": "2.0", "id": number}))
        else:
            self.send({"id": number, **response})

    def do_die(self, _: Any) -> None:
        complain("it hurts")
        os._exit(9)

    def do_hang(self, _: Any) -> None:
        time.sleep(FOREVER)

    def do_child(self, _: Any) -> None:
        """Start a child, which starts another one, for which nobody waits."""
        command = f"sleep {FOREVER} & echo $!; exec sleep {FOREVER}"
        child = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        self.note(event="child", pids=[child.pid, int(child.stdout.readline())])

    def do_notify(self, _: Any, *, method: str, count: int, params: Any = None) -> None:
        for _at in range(count):
            self.send({"method": method, "params": params or {}})

    def do_progress(self, params: Any, *, count: int, message: bool = False) -> None:
        """Report progress; with a folder ``seen``, go on when a file there is named after it."""
        seen = params["arguments"].get("seen")
        token = params["_meta"]["progressToken"]
        for at in range(count):
            note = {"progressToken": token, "progress": at, "total": count}
            note |= {"message": f"step {at}"} if message else {}
            self.send({"method": "notifications/progress", "params": note})
            while seen and not (Path(seen) / str(at)).exists():
                time.sleep(0.005)

    def do_request(self, _: Any, *, method: str, how: Any) -> str:
        """Request something of the client; one call at a time may."""
        self.send({"id": "ours", "method": method, "params": how})
        while (response := self._responses.get())["id"] != "ours":
            pass
        return json.dumps(response.get("result"))

    def do_request_in_vain(
        self, params: Any, *, method: str, how: Any, seen: str, again: bool = False
    ) -> str | None:
        """Request something and leave it when a file is there; or take it back, and do it again."""
        self.send({"id": "in vain", "method": method, "params": how})
        while not Path(seen).exists():
            time.sleep(0.005)
        if not again:
            return None
        self.send({"method": "notifications/cancelled", "params": {"requestId": "in vain"}})
        return self.do_request(params, method=method, how=how)

    def do_large(self, _: Any, *, size: int, id_last: bool = False) -> str:
        return "x" * size

    def do_stderr(self, _: Any, *, size: int, lines: int) -> None:
        complain("x" * size)
        for at in range(lines):
            complain(f"line {at}")

    def do_rubbish(self, _: Any, *, count: int) -> None:
        for at in range(count):
            self.send(f"no message {at}")


def complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    WireServer(Path(sys.argv[1])).run()
