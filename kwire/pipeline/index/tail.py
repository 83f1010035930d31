"""Records that are not indexed yet: reads those after the index's position from the brokers and checks each one.

They are decoded by the rules of the index, so that a record is found in the same way before and after it is indexed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

import attrs

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import UnknownTopic
from kwire.client.fetching import PartitionReader
from kwire.client.offsets import IsolationLevel
from kwire.pipeline.brokers import connect, explaining
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.index.fields import Field, NotIndexed, read_fields
from kwire.pipeline.index.found import FoundRecord
from kwire.pipeline.index.where import Condition, holds
from kwire.pipeline.tables.position import Gap, Position, start
from kwire.pipeline.topic_state import topic_state

_HINT: Final = "--tail-limit 0 reads the index alone"
_ENDS_AT_ONCE_MS: Final = 50
"""The maximum wait of a fetch. The requested records exist already, so a fetch never has to wait."""


@attrs.define(eq=False)
class Tail:
    """The offsets after a position, from `starts` to `ends`. `not_indexed` is counted while they are read."""

    topic: str
    isolation: IsolationLevel
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    lost: tuple[Gap, ...] = ()
    """Records that retention deleted before they were indexed."""
    not_indexed: int = 0
    """The number of records that would go to the errors table."""

    @property
    def offsets(self) -> int:
        """The number of offsets, including markers and compacted records."""
        return sum(end - self.starts[number] for number, end in self.ends.items())

    def find(self, cluster: Cluster, fields: Sequence[Field], condition: Condition | None) -> Iterator[FoundRecord]:
        """The records that meet the condition, by partition and offset. Raises PipelineError."""
        for number, end in sorted(self.ends.items()):
            if self.starts[number] < end:
                yield from self._find(cluster, number, fields, condition)

    def _find(
        self, cluster: Cluster, number: int, fields: Sequence[Field], condition: Condition | None
    ) -> Iterator[FoundRecord]:
        at = TopicPartition(self.topic, number)
        reader = PartitionReader(
            cluster,
            at,
            self.starts[number],
            self.ends[number],
            isolation_level=self.isolation,
            max_wait_ms=_ENDS_AT_ONCE_MS,
        )
        paths = [it.path for it in fields]
        with reader, _reading():
            for batch in reader.batches():
                timestamp_type = batch.header.timestamp_type
                for it in batch.records():
                    try:
                        values = read_fields(it.value, fields)
                    except NotIndexed:
                        self.not_indexed += 1
                        continue
                    found = FoundRecord(
                        partition=number,
                        offset=it.offset,
                        timestamp_ms=it.timestamp,
                        timestamp_type=timestamp_type,
                        key=it.key,
                        value=it.value,
                        headers=it.headers,
                        fields=dict(zip(paths, values, strict=True)),
                        is_tail=True,
                    )
                    if condition is None or holds(condition, found.value_of):
                        yield found


def tail_behind(cluster: Cluster, position: Position, isolation: str) -> Tail:
    """The tail after a position, as the brokers have it now. Raises PipelineError."""
    level = IsolationLevel[isolation.upper()]
    with _reading():
        try:
            state = topic_state(cluster, position.topic, level)
        except UnknownTopic:
            raise PipelineError(f"topic {position.topic} not found: is -b the cluster of the index?") from None
    begun = start(position, state, begin_at=state.starts, on_gap="record")
    return Tail(position.topic, level, begun.position.offsets, state.ends, begun.gaps)


@contextmanager
def reaching(bootstrap: str) -> Iterator[Cluster]:
    """The cluster. Raises PipelineError."""
    with connect(bootstrap, hint=_HINT) as cluster, _reading():
        yield cluster


def _reading() -> AbstractContextManager[None]:
    return explaining("what is not indexed yet cannot be read", _HINT)
