"""What the frames of a client do: the same as the routes of turns, runs and confirmations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, ValidationError

from mochi_project.http.errors import invalid_request
from mochi_project.runtime import get_runtime
from mochi_server.chat.runs.control import ENDED
from mochi_server.errors import InvalidRequest, JSONObject, RunNotFound, SessionNotFound

from ...api.chat import ChatRequest, begin_run
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
        self._known: dict[str, tuple[type[BaseModel], Callable[[Any], Awaitable[JSONObject]]]] = {
            "message": (ChatRequest, self._send_message),
            "tool:approval": (Approval, self._decide),
            "stop": (RunToStop, self._stop),
            "resume": (RunToResume, self._resume),
            "session:switch": (Place, self._switch),
        }

    async def begin(self, query: JSONObject) -> None:
        """Say what the socket talks to, as the query of its address wants it.

        Raises:
            MochiError: it cannot be talked to; the socket then talks to a new session.
        """
        place = _read(Place, query, "query")
        data = await _describe(place)
        self._place = place
        await self._outlet.send(frame("system:ready", data))

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
        schema, run = known
        return await run(_read(schema, client_frame.data, "data"))

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
        self._watches.add(started.run_id, started.reader)
        return {"run_id": started.run_id, "session_id": session_id, "state": started.state}

    async def _decide(self, approval: Approval) -> JSONObject:
        confirmation_id = self._watches.confirmation_of(approval.call_id)
        return await get_runtime().inbox.decide(confirmation_id, **approval.as_options())

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
            self._watches.add(named.run_id, reader)
        return {
            "run_id": named.run_id,
            "session_id": status["session_id"],
            "state": status["state"],
        }

    async def _switch(self, place: Place) -> JSONObject:
        data = await _describe(place)
        self._place = place
        self._watches.leave(abandon=False)
        await self._outlet.send(frame("session:switched", data))
        return data


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
        return (await get_runtime().run_control.status(run_id))["state"] not in ENDED
    except RunNotFound:  # it has ended too long ago
        return False


def _read(schema: type[BaseModel], values: JSONObject, place: str) -> Any:  # noqa: ANN401 - of the schema
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        problems: Any = error.errors(include_url=False)
        raise invalid_request(
            [{**problem, "loc": (place, *problem["loc"])} for problem in problems]
        ) from error
