"""The former name of the store of confirmations, which Django settings of users may have."""

from __future__ import annotations

from django.conf import settings

from mochi_server.chat.confirmations.files import FileConfirmationStore


class ChannelLayerApprovals(FileConfirmationStore):
    """The store in the data folder; channel layer and cache are not used any more."""

    def __init__(
        self,
        *,
        timeout: float | None = None,
        layer: str = "default",  # noqa: ARG002 - as settings of users have it
        cache: str = "default",  # noqa: ARG002
    ) -> None:
        super().__init__(settings.MOCHI.state_path / "confirmations")
        self.timeout = timeout
