"""The built-in model: GGUF files of the models folder, run by a child process of our own.

docs/explanation/built-in-model.md says what it is good for.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from stat import S_ISREG
from typing import Final

from pydantic import JsonValue

from ...config.installation import own_command
from ...core.aio import BackgroundTasks, in_thread
from ...core.leases import is_locked
from ...core.progress import ProgressReporter
from ...errors import JSONObject, ModelNotFound, ProviderError, ProviderNotConfigured
from ...protocol.options import ModelOptions
from ..base import (
    Capabilities,
    Chunk,
    Finish,
    LoadedModel,
    ModelInfo,
    ModelRequest,
    Provider,
    PullableModel,
    T,
    format_of,
)
from .catalogue import CATALOGUE, CatalogueModel, lock_of_pull, weights_in
from .engine import EXIT_SECONDS, Engine, missing_requirement
from .gguf import GGUFHeader, NotGGUF, read_header
from .served import LlamaServer, ServedModel

SLOTS: Final = 2
"""Requests that run at the same time; further ones wait in llama.cpp's queue."""
SLOT_TOKENS: Final = 4096
"""Context of each slot, or the model's own where that is smaller; the memory for it is taken at
the start."""
DEFAULT_MAX_TOKENS: Final = 1024
TINY_MAX_TOKENS: Final = 256
"""Tiny models do not know when to stop."""
TINY_PARAMETERS: Final = 300_000_000
"""Models with fewer weights get the settings for tiny ones (see the documentation)."""
TINY_SYSTEM_PROMPT: Final = (
    "You are a helpful assistant. Answer briefly and directly, in one or two short sentences."
)

# A penalty on repeated words also punishes the words of the question ("2 + 2" becomes an essay),
# so loops are broken by DRY, which looks at sequences only.
_NO_LOOPS: Final[JSONObject] = {
    "repeat_penalty": 1.0,
    "dry_multiplier": 1.5,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": 1024,
}
_TINY_TEMPERATURE: Final = 0.0
_TEMPERATURE: Final = 0.6


class LocalProvider(Provider):
    """The GGUF files of a folder; each file in use has one child process on this machine.

    ``idle_seconds``: time without use after which a model is unloaded.
    """

    # llama.cpp makes no grammar of a demanded call for every template.
    capabilities = Capabilities(forced_calls=False, thinks_unasked=True)
    options = LlamaServer.options

    def __init__(self, alias: str, *, models_path: Path, idle_seconds: float = 300) -> None:
        super().__init__(alias)
        self._folder = models_path.absolute()
        self._idle_seconds = idle_seconds
        self._headers: dict[Path, tuple[tuple[int, int], GGUFHeader]] = {}
        self._models: dict[Path, ServedModel] = {}
        self._replaced: list[ServedModel] = []
        """Models of files that were replaced; some may still have requests."""
        self._preloading = BackgroundTasks()

    async def problem(self) -> str | None:
        _, problem = await in_thread(self._scan)
        return problem

    def describe(self) -> str:
        return str(self._folder)

    async def check(self) -> bool:
        return await self.problem() is None

    async def list_models(self) -> list[ModelInfo]:
        models, _ = await in_thread(self._scan)
        return [self._describe(name, path, header) for name, (path, header) in models.items()]

    async def show_model(self, name: str) -> ModelInfo:
        path, header = await self._find(name)
        return self._describe(name, path, header)

    async def probe(self, name: str) -> bool:
        """Check that the model is there; a reply would load it."""
        await self.show_model(name)
        return False

    async def load(
        self,
        name: str,
        *,
        num_ctx: int | None = None,  # noqa: ARG002 - it has one size
        keep_alive: str | float | None = None,  # noqa: ARG002 - a setting says it
    ) -> None:
        model = await self._model(*await self._find(name))
        async with model.use():
            pass

    async def pullable_models(self) -> list[PullableModel]:
        return await in_thread(lambda: [*map(self._pullable, CATALOGUE.values())])

    def _pullable(self, model: CatalogueModel) -> PullableModel:
        is_present = is_being_pulled = False
        with suppress(OSError):  # the folder cannot be read, which the list of models says
            is_present = (self._folder / model.file_name).is_file()
            is_being_pulled = is_locked(lock_of_pull(self._folder, model.file_name))
        return PullableModel(
            name=model.name,
            size=model.size,
            capabilities=model.capabilities,
            is_present=is_present,
            is_being_pulled=is_being_pulled,
        )

    def pull(self, name: str, progress: ProgressReporter) -> None:
        from .pull import PullError, pull  # noqa: PLC0415 - a server may never need it

        if (problem := missing_requirement()) is not None:
            raise ProviderNotConfigured(f"The built-in model cannot run: {problem}.")
        try:
            pull(name, self._folder, progress)
        except PullError as error:
            raise ProviderError(str(error)) from error
        except OSError as error:
            text = f"The models folder {self._folder} cannot be used: {error.strerror or error}."
            raise ProviderError(text) from error

    async def loaded_models(self) -> list[LoadedModel]:
        """Return the models that run, also those that other processes have started."""
        models, _ = await in_thread(self._scan)
        return await in_thread(lambda: [*self._loaded(models)])

    def _loaded(self, models: Mapping[str, tuple[Path, GGUFHeader]]) -> Iterator[LoadedModel]:
        for name, (path, header) in models.items():
            window = _slot_tokens(header)
            with suppress(OSError):  # gone since it was listed
                if Engine.is_running(Engine.shared_folder(path, window)):
                    size = self._headers[path][0][1]
                    info = self._describe(name, path, header)
                    yield LoadedModel(model=info, size=size, window=window)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        path, header = await self._find(request.model)
        model = await self._model(path, header)
        if "openai" not in sys.modules and not self._preloading:  # while the model loads elsewhere
            self._preloading.spawn(in_thread(import_module, "openai"), name="import of openai")
        began = time.monotonic()
        async with model.use() as client:
            waited = time.monotonic() - began
            async with aclosing(client.stream(_adapted(request, header))) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, Finish):
                        chunk = replace(chunk, load_seconds=waited)  # noqa: PLW2901
                    yield chunk

    async def structured(self, request: ModelRequest, shape: type[T]) -> T:
        path, header = await self._find(request.model)
        model = await self._model(path, header)
        async with model.use() as client:
            request = replace(request, response_format=format_of(shape))
            return await client.structured(_adapted(request, header), shape)

    async def aclose(self) -> None:
        """Leave the child processes; those that nobody else uses end now."""
        await self._preloading.drain(EXIT_SECONDS)
        models = [*self._models.values(), *self._replaced]
        self._models, self._replaced = {}, []
        await asyncio.gather(*(model.aclose() for model in models))

    async def _find(self, name: str) -> tuple[Path, GGUFHeader]:
        models, problem = await in_thread(self._scan)
        if name in models:
            return models[name]
        if problem is not None:
            text = f"The built-in model cannot run: {problem}."
            raise ProviderNotConfigured(text, details={"provider": self.alias})
        raise ModelNotFound(model=name, details={"available": list[JsonValue](models)})

    def _scan(self) -> tuple[dict[str, tuple[Path, GGUFHeader]], str | None]:
        """Find the models that can chat here, by name; where there is none, the reason."""
        if (missing := missing_requirement()) is not None:
            return {}, missing
        try:
            files = weights_in(self._folder)
        except OSError as error:
            return {}, f"the models folder {self._folder} cannot be read: {error.strerror}"
        models: dict[str, tuple[Path, GGUFHeader]] = {}
        problem = None
        for name, path in files.items():
            try:
                header = self._header(path)
            except (NotGGUF, OSError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                problem = problem or f"{path} cannot be used: {reason}"
                continue
            if header.can_chat:
                models[name] = (path, header)
        if models:
            return models, None
        return {}, problem or f"no model (run: {own_command()} pull)"

    def _header(self, path: Path) -> GGUFHeader:
        """Read the file's header, again only after a change of the file."""
        stat = path.stat()
        if not S_ISREG(stat.st_mode):  # opening a pipe would wait
            raise NotGGUF("not a file")
        version = (stat.st_mtime_ns, stat.st_size)
        known = self._headers.get(path)
        if known is None or known[0] != version:
            known = self._headers[path] = (version, read_header(path))
        return known[1]

    def _describe(self, name: str, path: Path, header: GGUFHeader) -> ModelInfo:
        nanoseconds, size = self._headers[path][0]
        return ModelInfo(
            name=name,
            size_mb=round(size / 1e6, 1),
            modified_at=datetime.fromtimestamp(nanoseconds / 1e9, timezone.utc),
            format="gguf",
            family=header.architecture,
            parameter_size=header.parameter_size,
            quantization_level=header.quantization,
            capabilities=_capabilities(header),
            context_length=_slot_tokens(header),
            provider=self.alias,
        )

    async def _model(self, path: Path, header: GGUFHeader) -> ServedModel:
        """Serve the file as it is now, and stop using the one that it replaced."""
        context = _slot_tokens(header)
        try:
            folder = await in_thread(Engine.shared_folder, path, context)
        except OSError as error:
            raise ProviderError(f"The built-in model cannot start: {error}") from error
        old = self._models.get(path)
        if old is not None and old.engine.folder == folder:
            return old
        engine = Engine(
            path,
            folder,
            context=context,
            slots=SLOTS,
            threads=_usable_cores(),
            idle_seconds=self._idle_seconds,
        )
        sampling = _NO_LOOPS if _is_tiny(header) else {}
        self._models[path] = fresh = ServedModel(self.alias, engine, sampling)
        if old is not None:
            self._replaced = [model for model in (*self._replaced, old) if model.engine.uses]
            await old.retire()
        return fresh


def _is_tiny(header: GGUFHeader) -> bool:
    return header.parameters < TINY_PARAMETERS


def _adapted(request: ModelRequest, header: GGUFHeader) -> ModelRequest:
    """Return the request with what this model needs: sampling, a prompt, no tools it cannot use."""
    tiny = _is_tiny(header)
    limit = TINY_MAX_TOKENS if tiny and request.schema is None else DEFAULT_MAX_TOKENS
    options = request.options
    if options.temperature is None:
        usual = ModelOptions(temperature=_TINY_TEMPERATURE if tiny else _TEMPERATURE)
        options = options.with_changes(usual)
    messages = list(request.messages)
    if tiny and not any(message.get("role") == "system" for message in messages):
        messages.insert(0, {"role": "system", "content": TINY_SYSTEM_PROMPT})
    return replace(
        request,
        messages=messages,
        # A template without tools would drop them silently: the list of capabilities says so.
        tools=request.tools if "tools" in _capabilities(header) else (),
        options=options,
        max_tokens=request.max_tokens or limit,
    )


def _capabilities(header: GGUFHeader) -> list[str]:
    words = {"tools": "tools", "thinking": "enable_thinking"}
    return ["completion", *(name for name, word in words.items() if word in header.chat_template)]


def _slot_tokens(header: GGUFHeader) -> int:
    return min(header.context_length or SLOT_TOKENS, SLOT_TOKENS)


def _usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1
