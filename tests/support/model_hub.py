"""A hub of models that sends the second half of a file when it is let."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mochi_server.providers.builtin.catalogue import CatalogueModel, HubSource

CONTENT = bytes(range(256)) * 4000
MODEL = CatalogueModel(
    name="tiny:1m",
    source=HubSource(repository="o/tiny", revision="abc", file="tiny.gguf"),
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)
NAME = f"local/{MODEL.name}"


class Hub(ThreadingHTTPServer):
    """Serves CONTENT; the second half after ``rest`` is set."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests = 0
        self.rest = threading.Event()


class HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self.server.requests += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        half = len(CONTENT) // 2
        self.wfile.write(CONTENT[:half])
        self.wfile.flush()
        assert self.server.rest.wait(60)
        self.wfile.write(CONTENT[half:])

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
