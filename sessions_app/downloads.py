"""The response that streams a file of a workspace."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import BinaryIO
from urllib.parse import quote

from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from mochi_server.core.aio import in_thread, in_thread_to_completion
from mochi_server.core.media import image_type
from mochi_server.core.tcp import TakenBytes
from mochi_server.workspace.content import is_binary

logger = logging.getLogger(__name__)

CHUNK_BYTES = 262_144
SNIFFED_BYTES = 8_192

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")

NOT_OUR_PAGE = {
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
    "Accept-Ranges": "bytes",
}
"""A browser must not run what a model wrote as a page of this server."""


class FileDownload(StreamingHttpResponse):
    """A file, or a range of it, read in pieces; closing the response closes the file."""

    def __init__(
        self, file: BinaryIO, start: int, length: int, status: HTTPStatus, headers: dict[str, str]
    ) -> None:
        self._file = file
        self._start, self._length = start, length
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle
        self.transport: asyncio.BaseTransport | None = None
        """What writes to the client, where the handler knows it."""
        self.stalled = False
        """Whether the client has not read for too long; the handler then drops the connection."""
        super().__init__(self._parts(), status=status, headers=headers)

    @classmethod
    async def of(
        cls, request: HttpRequest, name: str, handle: int, status: os.stat_result
    ) -> HttpResponseBase:
        """Return the response to a request for an open file, which it closes."""
        file = open(handle, "rb")  # noqa: SIM115, ASYNC230 - a descriptor
        etag = f'"{status.st_ino:x}-{status.st_size:x}-{status.st_ctime_ns:x}"'
        headers = {**NOT_OUR_PAGE, "ETag": etag}
        if etag in re.split(r"\s*,\s*", request.headers.get("If-None-Match", "")):
            file.close()
            return HttpResponse(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        headers["Content-Type"] = await in_thread(_media_type, file)
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(_last(name), '')}"
        start, end, code = 0, status.st_size, HTTPStatus.OK
        if (wanted := _range_of(request, etag, status.st_size)) is not None:
            (start, end), code = wanted, HTTPStatus.PARTIAL_CONTENT
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{status.st_size}"
        headers["Content-Length"] = str(end - start)
        return cls(file, start, end - start, code, headers)

    async def _parts(self) -> AsyncIterator[bytes]:
        self._task = asyncio.current_task()
        await in_thread(self._file.seek, self._start)
        left = self._length
        while left:
            part = await in_thread_to_completion(self._file.read, min(left, CHUNK_BYTES))
            if not part:  # it has become shorter
                self.drop()
                await asyncio.sleep(0)
            left -= len(part)
            self._look_later(TakenBytes(self.transport))
            try:
                yield part
            finally:
                self._timer.cancel()

    def _look_later(self, taken: TakenBytes) -> None:
        loop, seconds = asyncio.get_running_loop(), settings.MOCHI.client_stall_seconds
        self._timer = loop.call_later(seconds, self._look, taken)

    def _look(self, taken: TakenBytes) -> None:
        """Drop a client that has taken nothing since the last look."""
        if taken.have_grown():
            self._look_later(taken)
        else:
            self.drop()

    def drop(self) -> None:
        """Let the handler cut the connection: the rest cannot be sent."""
        logger.warning("A client has not read its download, or the file has become shorter")
        self.stalled = True
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        self._file.close()
        super().close()


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _media_type(file: BinaryIO) -> str:
    """Return a type that no browser runs."""
    start = file.read(SNIFFED_BYTES)
    if (image := image_type(start)) is not None:
        return image
    try:
        start.decode()
    except UnicodeDecodeError as error:
        if error.end < len(start):  # else a character is cut at the end
            return "application/octet-stream"
    return "application/octet-stream" if is_binary(start) else "text/plain; charset=utf-8"


def _range_of(request: HttpRequest, etag: str, size: int) -> tuple[int, int] | None:
    """Return where the range that is asked for begins and ends; None: send the whole file.

    Several ranges, and what cannot be satisfied, are ignored, as the standard allows.
    """
    match = _RANGE.fullmatch(request.headers.get("Range", ""))
    if match is None or request.headers.get("If-Range", etag) != etag:
        return None
    first, last = match.groups()
    if first:
        start, end = int(first), min(int(last) + 1, size) if last else size
    else:
        start, end = max(size - int(last or "0"), 0), size
    return (start, end) if start < end else None
