"""A hub of models that waits in the midst of a file, breaks off and refuses."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mochi_server.providers.builtin.catalogue import CatalogueModel, HubSource

CONTENT = bytes(range(256)) * 4000
MODEL = CatalogueModel(
    name="tiny:1m",
    source=HubSource(repository="o/tiny", revision="abc", file="tiny.gguf"),
    capabilities=("completion", "tools"),
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)
NAME = f"local/{MODEL.name}"


class Hub(ThreadingHTTPServer):
    """Serves CONTENT with ranges; the second half of what is asked for after ``rest`` is set."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.content = CONTENT
        self.limit = len(CONTENT)
        """Bytes that it sends at most before it drops the connection."""
        self.has_ranges = True
        self.statuses: list[int] = []
        """Errors to answer with before anything else."""
        self.requests: list[tuple[str, str | None]] = []
        """Paths and ranges."""
        self.rest = threading.Event()


class HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        hub, wanted = self.server, self.headers.get("Range")
        hub.requests.append((self.path, wanted))
        if hub.statuses:
            self.send_error(hub.statuses.pop(0))
            return
        start = 0
        if wanted and hub.has_ranges and (found := re.fullmatch(r"bytes=(\d+)-", wanted)):
            start = int(found[1])
        content = hub.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        half = min(hub.limit, len(content) // 2)
        self.wfile.write(content[:half])
        self.wfile.flush()
        assert hub.rest.wait(60)
        self.wfile.write(content[half : hub.limit])

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def running_hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.rest.set()
        server.shutdown()
        thread.join()
        server.server_close()
