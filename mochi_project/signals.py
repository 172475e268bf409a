"""Signals between processes, on a channel layer of Django Channels."""

from __future__ import annotations

import logging
import secrets
from typing import Any, Final

import anyio
from django.conf import settings

from mochi_server.state import Signals
from mochi_server.state.signals import LOST_SECONDS

logger = logging.getLogger(__name__)

ALIAS: Final = "signals"
"""Name of the layer. It is not ``default``, which Channels gives to each WebSocket."""

GROUP: Final = "mochi"

CONNECT_SECONDS: Final = 2.0
SEND_SECONDS: Final = 3.0
"""Longest wait for the layer to take a signal."""


class ChannelSignals(Signals):
    """Signals within a process, and to all that have the same layer.

    While the layer is away, those of other processes do not arrive, which is logged once.
    """

    def __init__(self, layer: Any) -> None:  # noqa: ANN401 - they have no common class
        super().__init__()
        self._layer = layer
        self._process = secrets.token_hex(8)
        self._unsent: set[str] = set()
        self._is_sending = False
        self._is_receiving = False
        self._is_away = False

    def send(self, topic: str) -> None:
        super().send(topic)
        self._unsent.add(topic)
        if not self._is_sending:
            self._is_sending = True
            self._tasks.spawn(self._send(), name="signals to other processes")

    async def _send(self) -> None:
        try:
            while self._unsent:
                topics, self._unsent = sorted(self._unsent), set()
                message = {"type": "signal", "process": self._process, "topics": topics}
                try:
                    with anyio.fail_after(SEND_SECONDS):
                        await self._layer.group_send(GROUP, message)
                    self._is_away = False
                except Exception as error:  # noqa: BLE001 - of any layer
                    self._note_away(error)
        finally:
            self._is_sending = False

    def _begin(self) -> None:
        if not self._is_receiving:
            self._is_receiving = True
            self._tasks.spawn(self._receive(), name="signals of other processes")

    async def _receive(self) -> None:
        try:
            while True:
                try:
                    await self._receive_on_channel()
                except Exception as error:  # noqa: BLE001 - of any layer
                    self._note_away(error)
                await anyio.sleep(LOST_SECONDS)
        finally:
            self._is_receiving = False

    async def _receive_on_channel(self) -> None:
        channel = await self._layer.new_channel()
        await self._layer.group_add(GROUP, channel)
        self._is_away = False
        self._wake([*self._subscriptions])  # for what was sent before
        while True:
            message = await self._layer.receive(channel)
            if message["process"] != self._process:
                self._wake(message["topics"])

    def _note_away(self, error: Exception) -> None:
        if not self._is_away:
            text = "Signals do not reach other processes for now, which look each second: %s"
            logger.warning(text, str(error) or type(error).__name__)
        self._is_away = True


def channel_layers(redis_url: str) -> dict[str, Any]:
    """Return ``CHANNEL_LAYERS`` with a layer in Redis."""
    host = {
        "address": redis_url,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_keepalive": True,
        "socket_timeout": None,  # else the layer fails when there was no signal for so long
    }
    layer = "channels_redis.pubsub.RedisPubSubChannelLayer"
    return {ALIAS: {"BACKEND": layer, "CONFIG": {"hosts": [host], "prefix": GROUP}}}


def signals_of_settings() -> Signals | None:
    """Return signals on the layer of the settings; None if there is none."""
    if ALIAS not in settings.CHANNEL_LAYERS:
        return None
    from channels.layers import channel_layers as layers  # noqa: PLC0415 - a quicker start without

    return ChannelSignals(layers[ALIAS])
