"""Sessions that a message creates with its first turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated

from pydantic import WithJsonSchema

from mochi_project.runtime import get_runtime
from mochi_server.chat.runs.registry import log_failure
from mochi_server.core.aio import run_to_completion
from mochi_server.core.ids import new_run_id, new_uuid
from mochi_server.errors import (
    MochiError,
    ProviderError,
    SessionBusy,
    SessionExists,
    SessionNotFound,
)
from mochi_server.runtime import Runtime
from mochi_server.sessions.storage.base import ID_PATTERN, SESSION_ID

AnySessionId = Annotated[str, WithJsonSchema({"type": "string", "pattern": f"^{ID_PATTERN}$"})]
"""Not checked here: an id that no session can have is not found, as on every route."""


@asynccontextmanager
async def session_of_message(session_id: str | None, model: str | None) -> AsyncIterator[str]:
    """Yield the id of the session, which is created if it does not exist.

    If the turn is then refused, a new session is deleted again. If it cannot be deleted, because
    somebody uses it already, the error names it: the client has not seen its id yet. Without an id
    the session is new; ``model`` is that of a new one.

    Raises:
        SessionNotFound: it must be created and there is no model, or no session can have this id.
        ModelNotFound, ProviderNotConfigured, ProviderError: the model is not there.
        SessionUnreadable, StorageError.
        ShuttingDown, ServerBusy: it must be created, and no run can begin.
    """
    runtime = get_runtime()
    given, session_id = session_id, new_uuid() if session_id is None else session_id
    is_new = await _create_if_absent(runtime, session_id, given=given, model=model)
    try:
        yield session_id
    except SessionBusy:  # another first message uses it
        raise
    except MochiError as error:
        if is_new and not await _delete_if_empty(runtime, session_id):
            error.details.setdefault("session_id", session_id)
        raise
    except asyncio.CancelledError:  # the client has left
        if is_new:
            await run_to_completion(_delete_if_empty(runtime, session_id))
        raise


async def _delete_if_empty(runtime: Runtime, session_id: str) -> bool:
    """Delete a session without messages, and return whether it was deleted."""
    with suppress(MochiError):  # somebody else uses it already
        return await runtime.sessions.delete(session_id, only_if=lambda one: not one.messages)
    return False


async def _create_if_absent(
    runtime: Runtime, session_id: str, *, given: str | None, model: str | None
) -> bool:
    """Create the session if it does not exist, and return whether it was created."""
    if SESSION_ID.fullmatch(session_id) is None:
        raise SessionNotFound(
            "No session can have this id: one is 1 to 64 letters, digits, '_' and '-', and "
            "neither 'import' nor 'stream'.",
            details={"session_id": session_id},
        )
    with suppress(SessionNotFound):
        await runtime.sessions.check_exists(session_id)
        return False
    if model is None:
        raise SessionNotFound(
            "There is no such session, and a new one needs a model.",
            details={"session_id": given},
        )
    runtime.runs.check_open()
    try:
        await runtime.models.show_model(model)
        (await runtime.models.resolve(model)).require_right_to_tools()
    except ProviderError as error:
        log_failure(session_id, new_run_id(), model, error)
        raise
    created = []

    async def create() -> None:
        created.append(await runtime.sessions.create(model, session_id=session_id))

    try:
        await run_to_completion(create())
    except SessionExists:  # two first messages at once: the other one creates it just now
        async with runtime.sessions.edit(session_id):
            return False
    except asyncio.CancelledError:  # the client has left meanwhile
        if created:
            await run_to_completion(_delete_if_empty(runtime, session_id))
        raise
    return True
