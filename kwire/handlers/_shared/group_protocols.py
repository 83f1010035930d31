"""The group protocols that the broker serves: group.coordinator.rebalance.protocols, and the levels of features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION

if TYPE_CHECKING:
    from kwire.metadata.service import MetadataService

CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"

_FEATURES: Final = {CONSUMER: GROUP_VERSION, SHARE: SHARE_VERSION, STREAMS: STREAMS_VERSION}


def check_protocol(metadata: MetadataService, protocol: str) -> None:
    """Raises KafkaError(UNSUPPORTED_VERSION) if the broker's configuration or the cluster disables the protocol."""
    # As in Kafka, only the feature enables share groups: they are not in the default of the configuration.
    if protocol != SHARE and protocol not in metadata.config.group_coordinator_rebalance_protocols:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The {protocol} protocol is not in group.coordinator.rebalance.protocols of this broker.",
        )
    feature = _FEATURES[protocol]
    if not metadata.feature_level(feature):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The level of the feature {feature} of this cluster is 0.")
