"""The blocks of producer ids that brokers get, as from Kafka's `ProducerIdControlManager` (KIP-730)."""

from __future__ import annotations

from typing import Final

from kwire_protocol.internal.metadata_configs import ProducerIdsRecord

from kwire.metadata.controller.deciding import ClusterState, Records

BLOCK_SIZE: Final = 1000
"""The number of producer ids in a block; the rest of a block is lost at a restart, as in Kafka."""


def allocate_producer_ids(state: ClusterState) -> tuple[Records, range]:
    """Returns the next block, which only the deciding broker uses."""
    first = state.image.next_producer_id
    registration = state.image.brokers.get(state.node_id)
    epoch = registration.broker_epoch if registration is not None else -1
    block = range(first, first + BLOCK_SIZE)
    return [ProducerIdsRecord(state.node_id, epoch, block.stop)], block
