"""One WebSocket: its frames in order, its limits, its end."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import orjson
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

from mochi_project.http.errors import checked, translate
from mochi_project.http.gate import REQUEST_ID
from mochi_project.http.json import parse_json
from mochi_server.core.caller import current_caller, set_caller
from mochi_server.core.limits import REQUEST_VALUES
from mochi_server.core.logs import begin_request, request_id, set_log_ids
from mochi_server.core.token_bucket import TokenBucket
from mochi_server.errors import (
    InvalidJSON,
    JSONObject,
    MochiError,
    ProviderNotConfigured,
    ServerBusy,
    Unauthorized,
)

from ...streaming import is_unread
from .commands import PING, Commands
from .frames import FrameId, error_frame, frame
from .outlet import Outlet
from .schemas import MAX_ID, ClientFrame
from .watches import Watches

if TYPE_CHECKING:
    from .endpoint import SocketEndpoint

logger = logging.getLogger(__name__)

SUBPROTOCOL = "mochi"
"""Is accepted if the client offers it, beside one with the token."""

MOST_WAITING = 100
"""Frames that wait until those before them are executed."""

STOPPING, POLICY_VIOLATION, FAILED = 1012, 1008, 1011
"""Codes with which a socket is closed."""


class ChatConsumer(AsyncWebsocketConsumer):
    """One socket, from its connection to its end."""

    def __init__(self, *, endpoint: SocketEndpoint) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._tasks = endpoint.tasks
        self._waiting: deque[ClientFrame] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Accept the socket, and say what it talks to.

        Where the key of the provider is missing, it is closed: nothing can be said then.
        """
        offered = self.scope["subprotocols"]
        self._request_id = request_id().encode()
        self._caller = current_caller()
        self._outlet = Outlet(
            self, stall=settings.MOCHI.client_stall_seconds, on_stall=self._give_up
        )
        self._watches = Watches(self._outlet, self._tasks)
        self.commands = Commands(self._outlet, self._watches)
        rate = settings.MOCHI.socket_frames_per_second
        self._allowance = TokenBucket(rate, rate)
        await self.accept(
            SUBPROTOCOL if SUBPROTOCOL in offered else None,
            headers=[(REQUEST_ID, self._request_id)],  # type: ignore[list-item] # ASGI has bytes
        )
        await self._endpoint.add(self)
        query = parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        try:
            await self.commands.begin({name: text for name, text in query if name != "token"})
        except Exception as caught:  # noqa: BLE001 - the top of a consumer
            error = translate(caught)
            await self._outlet.send(error_frame(error))
            if isinstance(error, ProviderNotConfigured):
                await self._outlet.close(FAILED, error.code)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Let a frame be executed after those before it.

        What comes next is read meanwhile: with it come the answers to pings.
        """
        if not self._allowance.take():
            most = f"{settings.MOCHI.socket_frames_per_second:g}"
            await self._outlet.close(POLICY_VIOLATION, f"More than {most} frames a second.")
            return
        if not await self._may_go_on():
            return
        content = (bytes_data or b"") if text_data is None else text_data.encode()
        frame_id: FrameId = None
        try:
            parsed = _parse(content)
            frame_id = _id_of(parsed)
            client_frame = checked(ClientFrame.model_validate, parsed, "frame")
            if client_frame.event == PING:
                await self._outlet.send(frame("pong", {}, reply_to=client_frame.id))
                return
            if len(self._waiting) >= MOST_WAITING:
                raise ServerBusy(f"{MOST_WAITING} frames of this socket wait already.")
        except MochiError as error:
            await self._outlet.send(error_frame(error, reply_to=frame_id))
            return
        self._waiting.append(client_frame)
        if self._worker is None:
            self._worker = self._tasks.spawn(self._work(), name="frames of a socket")

    async def _work(self) -> None:
        begin_request(self._request_id)
        set_caller(self._caller)
        try:
            while self._waiting and not self._outlet.is_closed:
                if not await self._may_go_on():  # it may have waited for long
                    return
                await self._execute(self._waiting.popleft())
        finally:
            self._worker = None

    async def _may_go_on(self) -> bool:
        """Return whether its token is still accepted; close the socket if not."""
        if self._caller.is_valid():
            return True
        await self._outlet.close(POLICY_VIOLATION, Unauthorized.code)
        return False

    async def _execute(self, client_frame: ClientFrame) -> None:
        set_log_ids(self.commands.session_id)
        try:
            answer = await self.commands.execute(client_frame)
        except Exception as error:  # noqa: BLE001 - the top of a consumer
            await self._outlet.send(error_frame(translate(error), reply_to=client_frame.id))
        else:
            if client_frame.id is not None:
                await self._outlet.send(frame("reply", answer, reply_to=client_frame.id))

    async def tell(self, event: str, data: JSONObject) -> None:
        """Send what happens on the server, and belongs to no session."""
        if self._caller.is_valid():
            await self._outlet.send(frame(event, data))

    async def disconnect(self, code: int) -> None:
        """Leave the runs; what becomes of those that nobody reads, each of them knows."""
        del code
        self._endpoint.remove(self)
        self._waiting.clear()
        self._outlet.end()
        if is_unread(self.base_send):
            self._leave_unread()
        self._watches.leave()

    def _leave_unread(self) -> str:
        """Leave the runs of a client that does not read; they go on to their ends.

        Returns what it has not done.
        """
        text = f"has not read its socket for {settings.MOCHI.client_stall_seconds:g} s"
        logger.warning("A client %s; closing it", text)
        self._watches.leave(abandon=False)
        return text

    def _give_up(self) -> None:
        """Close the socket of a client that does not read."""
        text = self._leave_unread()
        self._tasks.spawn(
            self._outlet.close(POLICY_VIOLATION, f"The client {text}."), name="a slow socket"
        )

    async def stop(self, seconds: float) -> None:
        """Close the socket when its runs, which are being ended, have said so, or after so long."""
        ending: set[asyncio.Task[Any]] = self._watches.running
        if self._worker is not None:
            ending.add(self._worker)
        if ending:
            await asyncio.wait(ending, timeout=seconds)
        await self._outlet.close(STOPPING, "The server is stopping.")


def _parse(content: bytes) -> object:
    try:
        return parse_json(content, REQUEST_VALUES)
    except orjson.JSONDecodeError as error:
        raise InvalidJSON("The frame is not valid JSON.") from error


def _id_of(parsed: object) -> FrameId:
    """Return the id of a frame that may be wrong otherwise."""
    frame_id = parsed.get("id") if isinstance(parsed, dict) else None
    if isinstance(frame_id, str):
        return frame_id[:MAX_ID]
    return frame_id if isinstance(frame_id, int) and not isinstance(frame_id, bool) else None
