"""The common parts of the controller's rules: their input, their result, and a limit on their size.

A rule is a pure function of the cluster's state and a request. It returns the records that carry the request out and
the response. The metadata service appends the records (all or none) and responds once they are applied. With
`validate_only` the records are discarded. A `Decision`, the argument of the service, is a rule with its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_configs import ConfigRecord
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

from kwire.config.definition import Value, to_text
from kwire.config.resolution import ConfigResolver
from kwire.config.server import ServerConfig
from kwire.metadata.features import ELR_VERSION
from kwire.metadata.image import ConfigResourceType, MetadataImage
from kwire.metadata.records import MetadataRecord
from kwire.runtime.callbacks import ignore

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
MAX_RECORDS_PER_REQUEST: Final = 10_000

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"

Records = list[MetadataRecord]

P = ParamSpec("P")
T = TypeVar("T")

CheckListeners = Callable[[Mapping[str, str]], None]
"""Checks the configurations that this broker would have. Raises ConfigError if its listeners refuse them."""


@attrs.frozen
class ClusterState:
    """The input of a rule. `config` and `configs` are those of the deciding node, `new_id` makes ids.

    `end_offset` is the offset in the metadata log that the next record gets.
    """

    image: MetadataImage
    config: ServerConfig
    configs: ConfigResolver
    new_id: Callable[[], Uuid]
    now_ms: int
    end_offset: int
    is_alone: bool = True
    """True if the deciding broker is the whole cluster, and always will be."""
    check_listeners: CheckListeners = ignore

    @property
    def node_id(self) -> int:
        return self.config.node_id

    def topic_values(self, topic: str) -> Mapping[str, Value]:
        """The effective value of every topic configuration, by Kafka's names."""
        overrides = self.image.config(ConfigResourceType.TOPIC, topic)
        return self.configs.topic_values(overrides) if overrides else self.configs.topic_defaults()

    @property
    def has_elr(self) -> bool:
        """True if the cluster has eligible leader replicas (KIP-966)."""
        return self.image.features.get(ELR_VERSION, 0) > 0

    def allows_unclean_election(self, topic: str) -> bool:
        return bool(self._topic_value(topic, UNCLEAN))

    def min_isr(self, topic: str, replication_factor: int) -> int:
        """The topic's min.insync.replicas, at most the replication factor; as in `Leader.lacks_replicas`."""
        value = self._topic_value(topic, MIN_ISR)
        assert isinstance(value, int)
        return min(value, replication_factor)

    def _topic_value(self, topic: str, name: str) -> Value:
        overrides = self.image.config(ConfigResourceType.TOPIC, topic)
        if name in overrides:
            return self.configs.topic_values({name: overrides[name]})[name]
        return self.configs.topic_defaults()[name]


Rule = Callable[Concatenate[ClusterState, P], tuple[Records, T]]
"""Decides on a request. Raises KafkaError if it is refused."""

PlainRule = Callable[Concatenate[ClusterState, P], Records]
"""A rule without a response."""


@attrs.frozen
class Decision(Generic[T]):
    """A requested change of the metadata: a rule, and its arguments after the cluster's state.

    The rule is called when all earlier changes are applied, and again if another writer has appended first.
    """

    rule: Callable[..., tuple[Records, T] | Records]
    arguments: tuple[Any, ...] = ()
    named_arguments: Mapping[str, Any] = attrs.field(factory=dict)

    def on(self, state: ClusterState) -> tuple[Records, T]:
        """Returns the records and the response. Raises KafkaError."""
        decided: Any = self.rule(state, *self.arguments, **self.named_arguments)
        return decided if isinstance(decided, tuple) else (decided, None)


class Mutations(Protocol):
    """The client's quota of partitions to create and delete (KIP-599)."""

    def begin(self) -> None:
        """Begins the decision, which may be made again if another writer has appended first."""

    def take(self, partitions: int) -> None:
        """Charges for some partitions. Raises KafkaError(THROTTLING_QUOTA_EXCEEDED)."""


class _AnyMutations:
    def begin(self) -> None: ...

    def take(self, partitions: int) -> None: ...


ANY_MUTATIONS: Final = _AnyMutations()
"""No quota, for the topics that the broker itself creates."""


def min_isr_for_everybody(state: ClusterState) -> Records:
    """Records this broker's static min.insync.replicas for all brokers, unless a value is recorded already.

    The controller's decisions and all leaders must use the same value.
    """
    if MIN_ISR in state.image.config(ConfigResourceType.BROKER, ""):
        return []
    own = to_text(state.configs.topic_defaults()[MIN_ISR])
    return [ConfigRecord(ConfigResourceType.BROKER, "", MIN_ISR, own)]


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
