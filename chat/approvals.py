"""The name by which Django settings of users may know the class."""

from .confirmations.channel_layer import ChannelLayerApprovals

__all__ = ["ChannelLayerApprovals"]
