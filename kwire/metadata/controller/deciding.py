"""What the controller's decisions share: their input, their result, and a limit on their size.

A decision is a pure function of the cluster's state and a request. It returns the records that carry it out and the
response. The caller appends the records (all or none) and responds once they are applied. With `validate_only` the
records are discarded. Ids are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

from kwire.config.definition import Value
from kwire.config.resolution import ConfigResolver
from kwire.metadata.image import ConfigResourceType, MetadataImage
from kwire.metadata.records import MetadataRecord

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
MAX_RECORDS_PER_REQUEST: Final = 10_000

Records = list[MetadataRecord]


@attrs.frozen
class ClusterState:
    """The input of a decision. `new_id` makes topic ids."""

    image: MetadataImage
    configs: ConfigResolver
    node_id: int
    num_partitions: int
    default_replication_factor: int
    new_id: Callable[[], Uuid]
    is_alone: bool = True
    """Whether the deciding broker is the whole cluster, and always will be."""

    def topic_values(self, topic: str) -> Mapping[str, Value]:
        """The effective value of every topic configuration, by Kafka's names."""
        overrides = self.image.config(ConfigResourceType.TOPIC, topic)
        return self.configs.topic_values(overrides) if overrides else self.configs.topic_defaults()


def check_batch_size(records: Records) -> None:
    """Raises KafkaError(POLICY_VIOLATION) for more records than one request may create."""
    if len(records) > MAX_RECORDS_PER_REQUEST:
        raise too_many(len(records), "topics, partitions and configurations", MAX_RECORDS_PER_REQUEST)


def too_many(count: int, what: str, limit: int) -> KafkaError:
    return KafkaError(
        ErrorCode.POLICY_VIOLATION,
        f"Excessively large number of {what} per request: {count}. Send several requests of at most {limit}.",
    )


def repeated(what: str) -> str:
    return f"Duplicate {what}: the request has it more than once."
