"""The former name of the broker, which Django settings of users may have."""

from .confirmations.channel_layer import ChannelLayerConfirmations

ChannelLayerApprovals = ChannelLayerConfirmations
