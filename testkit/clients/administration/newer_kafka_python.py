"""kafka-python 3.0, which has most of the admin requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs
from kafka import IsolationLevel, OffsetAndMetadata, OffsetSpec, TopicPartition, errors

from testkit.clients import kafka_python
from testkit.clients.administration.client import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    DescribedGroup,
    DescribedMember,
    Refused,
)
from testkit.clients.administration.kafka_python import KafkaPythonAdmin

_NAMED = {EARLIEST: OffsetSpec.EARLIEST, LATEST: OffsetSpec.LATEST, MAX_TIMESTAMP: OffsetSpec.MAX_TIMESTAMP}


@attrs.frozen
class _Admin(KafkaPythonAdmin):
    def described(self, group: str) -> DescribedGroup:
        found = self.client.describe_groups([group])[group]
        assert found["error"] is None
        assert found["protocol_type"] == "consumer"
        members = [
            DescribedMember(
                it["client_id"],
                it["group_instance_id"],
                it["client_host"],
                [number for own in it["member_assignment"]["assigned_partitions"] for number in own["partitions"]],
            )
            for it in found["members"]
        ]
        return DescribedGroup(found["group_state"], found["protocol_data"], members)

    def listed(self, group: str, *states: str) -> str | None:
        found = self.client.list_groups(states_filter=list(states) or None)
        return next((it["group_state"] for it in found if it["group_id"] == group), None)

    def alter_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        wanted = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, "", None)
            for partition, offset in offsets.items()
        }
        answer = self.client.alter_group_offsets(group, wanted)
        assert answer.keys() == wanted.keys()
        for error in answer.values():
            if error is not errors.NoError:
                raise Refused(error.errno)

    def offset_at(self, topic: str, time: str | int, *, committed: bool) -> tuple[int, int]:
        spec = _NAMED[time] if isinstance(time, str) else time
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        partition = TopicPartition(topic, 0)
        found = self.client.list_partition_offsets({partition: spec}, isolation_level=level)[partition]
        return found.offset, found.timestamp


@attrs.frozen
class NewerKafkaPython:
    @contextmanager
    def administering(self, bootstrap: str) -> Iterator[_Admin]:
        with kafka_python.administering(bootstrap) as client:
            yield _Admin(client)
