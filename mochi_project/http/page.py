"""The page at the root of the server: files of a folder, compressed and cached.

The files of our own page have the hash of all of them in their addresses, so browsers keep them
for ever. The files of ``MOCHI_PUBLIC_DIR`` may change at any time, so browsers ask each time.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from mimetypes import MimeTypes
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from mochi_server.config import MochiServerSettings
from mochi_server.core.aio import in_thread

from .errors import not_found
from .wires import WIRES

FOLDER = Path(__file__).parent.parent / "page"

PREFIX = "page/"
"""Begin of the addresses of the files of our own page, below the root."""

RESERVED = {"api", "mcp", "ws"} | {
    prefix.partition("/")[0] for wire in WIRES for prefix in wire.prefixes
}
"""First parts of paths that are never files: those of the APIs."""

WORKER = "app/worker.js"
"""The service worker of the installed app, which is for all below the root."""

CACHED_BYTES = 2_000_000
"""Largest file that stays in memory."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; frame-src 'self'; manifest-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify mochi-worker"
)

FRAME = "frame/index.html"
"""The file of our own page that draws diagrams and charts, in a frame without an origin."""

FRAME_SECURITY_POLICY = (
    "default-src 'none'; script-src blob: 'sha256-1XlNfGyIRlqiD/+k8TxcctQDiw9uQdaS3wkWCwEDlvQ='; "
    "style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts"
)

_COMPRESSED = ("text/", "application/javascript", "application/json", "image/svg+xml")

_TYPES = MimeTypes()
for _extension, _type in {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}.items():
    _TYPES.add_type(_type, _extension)


@dataclass(frozen=True, kw_only=True)
class StaticFile:
    """A file as it was read."""

    content: bytes
    gzipped: bytes | None
    """Its content compressed; None where that does not make it smaller."""
    content_type: str
    etag: str
    snapshot: tuple[int, int]
    """Time of its last change and size."""


class StaticFolder:
    """The files of a folder, by their path in it with ``/``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cache: dict[str, StaticFile] = {}
        self._version: str | None = None

    def find(self, name: str) -> Path | None:
        """Return the path of a file; None for what is no file, hidden, or outside the folder."""
        parts = name.split("/")
        if "\0" in name or parts[0] in RESERVED or any(part[:1] in {".", ""} for part in parts):
            return None
        path = (self.folder / name).resolve()
        return path if path.is_relative_to(self.folder.resolve()) and path.is_file() else None

    async def read(self, name: str) -> StaticFile | None:
        return await in_thread(self._read, name)

    async def version(self) -> str:
        """Return a hash of the names and contents of all files as they are at the first call."""
        if self._version is None:
            self._version = await in_thread(self._hash)
        return self._version

    def _read(self, name: str) -> StaticFile | None:
        path = self.find(name)
        if path is None:
            return None
        state = path.stat()
        snapshot = (state.st_mtime_ns, state.st_size)
        cached = self._cache.get(name)
        if cached is not None and cached.snapshot == snapshot:
            return cached
        file = _load(path, snapshot)
        if state.st_size <= CACHED_BYTES:
            self._cache[name] = file
        return file

    def _hash(self) -> str:
        digest = sha256()
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            digest.update(f"{path.relative_to(self.folder)}\0".encode())
            digest.update(sha256(path.read_bytes()).digest())
        return digest.hexdigest()[:16]


def _load(path: Path, snapshot: tuple[int, int]) -> StaticFile:
    content = path.read_bytes()
    content_type = _TYPES.guess_type(path.name)[0] or "application/octet-stream"
    gzipped = None
    if content_type.startswith(_COMPRESSED):
        gzipped = gzip.compress(content, mtime=0)
        if len(gzipped) >= len(content):
            gzipped = None
    if content_type.startswith("text/"):
        content_type += "; charset=utf-8"
    return StaticFile(
        content=content,
        gzipped=gzipped,
        content_type=content_type,
        etag=f'"{sha256(content).hexdigest()[:32]}"',
        snapshot=snapshot,
    )


OWN = StaticFolder(FOLDER)


def public_folder(mochi: MochiServerSettings) -> StaticFolder | None:
    """Return the folder that is served instead of our own page."""
    if not mochi.playground or mochi.public_path is None:
        return None
    return StaticFolder(mochi.public_path)


@cache
def _public() -> StaticFolder | None:
    return public_folder(settings.MOCHI)


async def index(request: HttpRequest) -> HttpResponse:
    """Answer with the page, or with ``index.html`` of the folder that replaces it."""
    if _public() is not None:
        return await public_file(request, "index.html")
    template = await in_thread((FOLDER / "index.html").read_text, encoding="utf-8")
    # Relative to the address of the page: a proxy may have cut off the path that it is below.
    folder = request.path.rpartition("/")[2]
    prefix = f"{folder}/{PREFIX}" if folder else PREFIX
    drawings = "on" if settings.MOCHI.drawings else "off"
    page = template.replace("{{page}}", f"{prefix}{await OWN.version()}/")
    content = page.replace("{{drawings}}", drawings).encode()
    file = StaticFile(
        content=content,
        gzipped=gzip.compress(content, mtime=0),
        content_type="text/html; charset=utf-8",
        etag=f'"{sha256(content).hexdigest()[:32]}"',
        snapshot=(0, 0),
    )
    response = _answer(request, file, "no-cache")
    response["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    response["Referrer-Policy"] = "no-referrer"
    response["X-Frame-Options"] = "DENY"
    return response


async def own_file(request: HttpRequest, version: str, name: str) -> HttpResponse:
    """Answer with a file of our own page; an old version's address has the new content."""
    file = await OWN.read(name)
    if file is None:
        return not_found(request)
    is_current = version == await OWN.version()
    response = _answer(
        request, file, "public, max-age=31536000, immutable" if is_current else "no-cache"
    )
    if name == FRAME:
        response["Content-Security-Policy"] = FRAME_SECURITY_POLICY
    if name == WORKER:
        response["Service-Worker-Allowed"] = "../../../"  # below its own address, behind any path
    return response


async def public_file(request: HttpRequest, name: str) -> HttpResponse:
    folder = _public()
    file = await folder.read(name) if folder is not None else None
    if file is None:
        return not_found(request)
    return _answer(request, file, "no-cache")


def _answer(request: HttpRequest, file: StaticFile, cache_control: str) -> HttpResponse:
    headers = {"ETag": file.etag, "Cache-Control": cache_control, "Vary": "Accept-Encoding"}
    known = request.headers.get("If-None-Match", "")
    if file.etag in {tag.strip().removeprefix("W/") for tag in known.split(",")}:
        return HttpResponse(status=304, headers=headers)
    content = file.content
    if file.gzipped is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
        content = file.gzipped
        headers["Content-Encoding"] = "gzip"
    return HttpResponse(content, content_type=file.content_type, headers=headers)
