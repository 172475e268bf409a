"""What the frames of a client do: the same as the routes of turns, runs and confirmations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel

from mochi_project.http.errors import checked
from mochi_project.runtime import get_runtime
from mochi_server.chat.journal.base import ListedRun
from mochi_server.chat.journal.records import GOING_ON
from mochi_server.chat.runs.log import LogReader
from mochi_server.core.caller import Right, current_caller, require, serving
from mochi_server.errors import InvalidRequest, JSONObject, MochiError, RunNotFound, SessionNotFound

from ...api.chat import begin_run
from ...api.chat_bodies import ChatRequest
from ...new_sessions import session_of_message
from .frames import frame
from .outlet import Outlet
from .schemas import Approval, ClientFrame, Place, RunToResume, RunToStop
from .watches import Watches

PING = "ping"
"""The event that is answered by ``pong``, without waiting for those before it."""


class Commands:
    """Executes the frames of one socket, and knows what the socket talks to."""

    def __init__(self, outlet: Outlet, watches: Watches) -> None:
        self._outlet = outlet
        self._watches = watches
        self._place = Place()
        self._is_executing = False
        self._caller = current_caller()
        self._seen: set[str] | None = set()
        """Runs of the place that had begun before it was chosen, or that this socket has read.

        None while it could not be asked for the former.
        """
        self._known: dict[
            str, tuple[Right, type[BaseModel], Callable[[Any], Awaitable[JSONObject]]]
        ] = {
            "message": ("chat", ChatRequest, self._send_message),
            "tool:approval": ("tools", Approval, self._decide),
            "stop": ("chat", RunToStop, self._stop),
            "resume": ("read", RunToResume, self._resume),
            "session:switch": ("read", Place, self._switch),
        }
        """The right, the data and the method of each event."""

    async def begin(self, query: JSONObject) -> None:
        """Say what the socket talks to, as the query of its address wants it.

        Raises:
            MochiError: it cannot be talked to; the socket then talks to a new session.
        """
        data = await self._go_to(checked(Place.model_validate, query, "query"))
        await self._outlet.send(frame("system:ready", data))

    @property
    def session_id(self) -> str | None:
        """The session that the socket talks to; None if there is none yet."""
        return self._place.session_id

    async def follow(self, session_id: str, runs: list[ListedRun]) -> None:
        """Read those runs of the session that have begun since the socket talks to it.

        Args:
            session_id: The session.
            runs: All of its runs that are in no queue, the first one first.
        """
        if self._seen is None and session_id == self._place.session_id:
            self._seen = {run.run_id for run in runs}
        for run in runs:
            await self._follow(run)

    async def _follow(self, run: ListedRun) -> None:
        """Read a run, if it is new.

        Not while a frame is executed, which may begin or read it, nor where it cannot be read
        now: the caller tries again.
        """
        if not self._is_new(run) or not self._caller.is_valid():
            return
        try:
            self._watches.check_room()
            with serving(self._caller):
                reader = await get_runtime().run_control.join(run.run_id)
        except MochiError:
            return
        if reader is not None and self._is_new(run):
            self._add(run.run_id, reader)
        elif reader is not None:
            reader.leave()

    def _is_new(self, run: ListedRun) -> bool:
        return (
            not self._is_executing
            and run.session_id == self._place.session_id
            and self._seen is not None
            and run.run_id not in self._seen
        )

    def _add(self, run_id: str, reader: LogReader) -> None:
        if self._seen is not None:
            self._seen.add(run_id)
        self._watches.add(run_id, reader)

    async def _go_to(self, place: Place) -> JSONObject:
        """Talk to a place, and return what clients are told about it."""
        seen = await _begun_runs(place.session_id)
        data = await _describe(place)
        if seen is not None and "run_id" in data:
            seen.add(str(data["run_id"]))
        self._place, self._seen = place, seen
        return data

    async def execute(self, client_frame: ClientFrame) -> JSONObject:
        """Execute a frame, and return what a frame with an id is answered.

        Raises:
            MochiError: as the routes do.
        """
        known = self._known.get(client_frame.event)
        if known is None:
            raise InvalidRequest(
                f"There is no event {client_frame.event[:100]!r}.",
                details={"events": [*self._known, PING]},
            )
        right, schema, run = known
        require(right)
        self._is_executing = True
        try:
            return await run(checked(schema.model_validate, client_frame.data, "data"))
        finally:
            self._is_executing = False

    async def _send_message(self, request: ChatRequest) -> JSONObject:
        self._watches.check_room()
        place = self._place
        model = place.model
        if place.session_id is None and model is None:
            model = await get_runtime().providers.first_model()
        async with session_of_message(place.session_id, model) as session_id:
            started = await begin_run(
                session_id, request, wait=request.confirmations != "deny", model=place.model
            )
        self._place = place.model_copy(update={"session_id": session_id})
        self._add(started.run_id, started.reader)
        return {"run_id": started.run_id, "session_id": session_id, "state": started.state}

    async def _decide(self, approval: Approval) -> JSONObject:
        confirmation_id = await self._confirmation_of(approval.call_id)
        return await get_runtime().inbox.decide(confirmation_id, **approval.as_options())

    async def _confirmation_of(self, call_id: str) -> str:
        """Return the confirmation that is meant by the id of a call, or by its own.

        Raises:
            InvalidRequest: several calls of this id wait, as of two agents.
            ConfirmationUnavailable: the store cannot be reached.
        """
        asked = self._watches.asked_about(call_id)
        waiting = [each for each, waits in asked.items() if waits] or await self._waiting(call_id)
        if len(waiting) > 1:
            raise InvalidRequest(
                "Several calls of this id wait: name one by its confirmation_id.",
                details={"confirmation_ids": [*waiting]},
            )
        return waiting[0] if waiting else next(reversed(asked), call_id)

    async def _waiting(self, call_id: str) -> list[str]:
        """Return what waits in the session about a call of which this socket has not read."""
        if self._place.session_id is None:
            return []
        pending = await get_runtime().chat.confirmations(self._place.session_id)
        return [str(one["confirmation_id"]) for one in pending if one["tool_call_id"] == call_id]

    async def _stop(self, named: RunToStop) -> JSONObject:
        control = get_runtime().run_control
        if named.run_id is not None:
            return await control.stop(named.run_id)
        if self._place.session_id is None:
            raise RunNotFound("This socket has no session yet.")
        return await control.stop_session(self._place.session_id)

    async def _resume(self, named: RunToResume) -> JSONObject:
        self._watches.check_room()
        control = get_runtime().run_control
        status = await control.status(named.run_id)
        reader = await control.join(named.run_id, named.after)
        if reader is not None:
            self._add(named.run_id, reader)
        return {
            "run_id": named.run_id,
            "session_id": status["session_id"],
            "state": status["state"],
        }

    async def _switch(self, place: Place) -> JSONObject:
        data = await self._go_to(place)
        self._watches.leave(abandon=False)
        await self._outlet.send(frame("session:switched", data))
        return data


async def _begun_runs(session_id: str | None) -> set[str] | None:
    """Return the runs of a session that have begun; None where they cannot be listed now."""
    if session_id is None:
        return set()
    try:
        return await get_runtime().runs.begun_runs(session_id)
    except MochiError:
        return None


async def _describe(place: Place) -> JSONObject:
    """Return what clients are told: ``{"provider", "model", "session_id", "run_id"}``.

    Without what there is not. ``run_id`` is a run of the session that goes on.

    Raises:
        SessionNotFound: there is no such session, and no model to create it with.
        ProviderNotConfigured: the provider of the model lacks its key.
        MochiError: the model, a preset or an agent, cannot be used.
    """
    runtime = get_runtime()
    model, last_run = place.model, None
    if place.session_id is not None:
        try:
            metadata = (await runtime.sessions.get(place.session_id)).metadata
        except SessionNotFound:
            if model is None:
                raise
        else:
            model, last_run = model or metadata.model, metadata.last_run_id
    if model is None:
        return {"provider": runtime.providers.default}
    setup = await runtime.models.resolve(model)
    provider, _ = runtime.providers.resolve(setup.model)
    if not provider.configured:
        await provider.prepare()
    data: JSONObject = {"provider": provider.alias, "model": model}
    if place.session_id is not None:
        data["session_id"] = place.session_id
    if last_run is not None and await _goes_on(last_run):
        data["run_id"] = last_run
    return data


async def _goes_on(run_id: str) -> bool:
    try:
        return (await get_runtime().run_control.status(run_id))["state"] in GOING_ON
    except RunNotFound:  # it has ended too long ago
        return False
