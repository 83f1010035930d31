"""Changes between requests: settings, permissions, quotas, roles, the disk, transactions, and time."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from random import Random
from typing import Any, Final

import attrs
from kwire_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kwire_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kwire_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kwire_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.records import Record, build_batch, read_header
from kwire_protocol.wire import ApiMessage

from kwire.names.topic_names import CONSUMER_OFFSETS
from kwire.replicas.partition import Partition
from kwire.replicas.roles import Absent, Follower, Leader, Role
from kwire.security.authorizer import Operation, ResourceType
from testkit.fast_paths import topics
from testkit.fast_paths.grouping import GROUPS
from testkit.fast_paths.still_broker import StillBroker
from testkit.fast_paths.twins import Twins
from testkit.raw.client import request_frame

TOPIC, GROUP = 2, 32
SET, DELETE = 0, 1
LITERAL, ANY_PATTERN = 3, 1
DENY, ALLOW, ANY = 2, 3, 1
CONFIGS: Final = (
    ("max.message.bytes", ("150", "1000000")),
    ("flush.messages", ("1", "3")),
    ("flush.ms", ("1000",)),
    ("compression.type", ("gzip",)),
    ("cleanup.policy", ("compact",)),
    ("message.timestamp.type", ("LogAppendTime",)),
    ("message.timestamp.after.max.ms", ("5000",)),
    ("min.insync.replicas", ("2",)),
    ("segment.bytes", ("1048576", "2000000")),
)
NO_ROOM: Final = (errno.ENOSPC, errno.ENOMEM)


@attrs.define(eq=False)
class Changing:
    random: Random
    twins: Twins
    hosts: tuple[str, ...]
    _epochs: dict[tuple[str, int], int] = attrs.field(factory=dict)
    _open: dict[tuple[str, int], int] = attrs.field(factory=dict)
    """The open transactions: the epoch of producer 9, by partition."""

    def change(self) -> None:
        changes: tuple[tuple[int, Callable[[], None]], ...] = (
            (6, self._advance),
            (5, self._flush),
            (5, self._alter_topic),
            (3, self._alter_group),
            (5, self._change_acls),
            (3, self._change_quotas),
            (5, self._change_role),
            (2, self._change_disk),
            (3, self._delete_records),
            (2, self._recreate),
            (6, self._run_transaction),
            (1, self._lose_replica),
            (1, self._toggle_protocol),
        )
        [(_, change)] = self.random.choices(changes, [weight for weight, _ in changes])
        change()

    def calm_down(self) -> None:
        """Ends what keeps most requests from having a fast path."""
        self.twins.both(lambda it: setattr(it.disk, "before_operation", None))
        self._flush()
        if self.twins.plain.lost:
            self._lose_replica()
        if "consumer" not in self.twins.plain.broker.metadata.config.group_coordinator_rebalance_protocols:
            self._toggle_protocol()
        for name, index in self._partitions():
            self._take(name, index, self._leader(name, index, (1,)))
        self._set_quota(None)
        self._call(DeleteAclsRequest([DeleteAclsFilter(ANY, None, ANY_PATTERN, None, None, ANY, ANY)]), 3)

    def _some_partition(self) -> tuple[str, int]:
        """Returns a partition: most times the one that most requests name."""
        partitions = self._partitions()
        draw = self.random.random()
        if draw < 0.1:
            return self.random.choice([it for it in partitions if it[0] == CONSUMER_OFFSETS])
        return topics.BUSIEST if draw < 0.6 and topics.BUSIEST in partitions else self.random.choice(partitions)

    def _call(self, request: ApiMessage, version: int) -> None:
        self.twins.send(topics.ADMIN_HOST, request_frame(request, version))

    def _partitions(self) -> list[tuple[str, int]]:
        hosted = self.twins.plain.broker.partitions.by_name
        return [
            (name, index)
            for name in (*topics.CONFIGS, CONSUMER_OFFSETS)
            for index, it in enumerate(hosted.get(name, ()))
            if type(it) is Partition
        ]

    # -- time and the disk

    def _advance(self) -> None:
        self.twins.advance(self.random.choice((0, 1, 50, 150, 600, 3_000, 50_000)))

    def _flush(self) -> None:
        self.twins.both(StillBroker.flush)
        self.twins.settle()

    def _change_disk(self) -> None:
        if self.twins.plain.disk.before_operation is not None:
            self.twins.both(lambda it: setattr(it.disk, "before_operation", None))
            return
        code, name = self.random.choice(NO_ROOM), self.random.choice(("plain-0", "plain-1", "busy"))

        def refuse(operation: str, path: str) -> None:
            if operation == "append" and name in path:
                raise OSError(code, os.strerror(code), path.partition(".")[0])  # temporary names are numbered

        self.twins.both(lambda it: setattr(it.disk, "before_operation", refuse))

    # -- topics and groups

    def _alter(self, resource: int, name: str, key: str, value: str | None) -> None:
        config = AlterableConfig(key, DELETE if value is None else SET, value)
        self._call(IncrementalAlterConfigsRequest([AlterConfigsResource(resource, name, [config])]), 1)
        self.twins.settle()

    def _alter_topic(self) -> None:
        if self.random.random() < 0.1:
            self._alter(TOPIC, CONSUMER_OFFSETS, "cleanup.policy", self.random.choice(("delete", None)))
            return
        key, values = self.random.choice((*CONFIGS, *CONFIGS[:2], CONFIGS[1], CONFIGS[1]))
        value = self.random.choice((*values, None))
        self._alter(TOPIC, self.random.choice(("plain", "plain", "busy", "flushed")), key, value)

    def _alter_group(self) -> None:
        key = self.random.choice(("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"))
        values = ("5000", "6000", None) if "heartbeat" in key else ("45000", "50000", None)
        self._alter(GROUP, self.random.choice(GROUPS), key, self.random.choice(values))

    def _recreate(self) -> None:
        name = self.random.choice(("plain", "busy", "compacted"))
        if name in self.twins.plain.broker.metadata.image.topics:
            self._call(DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=1000), 6)
            for index in range(topics.PARTITIONS):
                self._open.pop((name, index), None)
                self._epochs.pop((name, index), None)
        if self.random.random() < 0.8:
            topics.create(self.twins, name)

    def _delete_records(self) -> None:
        name, index = self._some_partition()
        partition = DeleteRecordsPartition(index, self.random.choice((-1, 1, 5)))
        self._call(DeleteRecordsRequest([DeleteRecordsTopic(name, [partition])], 1000), 2)

    # -- permissions and quotas

    def _change_acls(self) -> None:
        random = self.random
        host = random.choice(("*", *self.hosts))
        if random.random() < 0.5:
            found = DeleteAclsFilter(ANY, None, ANY_PATTERN, None, None if host == "*" else host, ANY, ANY)
            self._call(DeleteAclsRequest([found]), 3)
            return
        resource, name = random.choice(
            ((ResourceType.TOPIC, "plain"), (ResourceType.TOPIC, "busy"), (ResourceType.GROUP, GROUPS[0]))
        )
        operation = random.choice((Operation.READ, Operation.WRITE, 2, Operation.DESCRIBE))
        permission = random.choice((DENY, ALLOW, ALLOW))
        acl = AclCreation(resource, name, LITERAL, "User:ANONYMOUS", host, operation, permission)
        self._call(CreateAclsRequest([acl]), 3)

    def _change_quotas(self) -> None:
        self._set_quota(None if self.twins.plain.broker.client_quotas.are_set else self.random.choice((50.0, 1e9)))

    def _set_quota(self, value: float | None) -> None:
        entity = [AlterClientQuotasRequestEntityData("client-id", "one")]
        keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
        ops = [OpData(key, value or 0.0, value is None) for key in (keys if value is None else keys[:2])]
        self._call(AlterClientQuotasRequest([AlterClientQuotasRequestEntryData(entity, ops)]), 1)
        self.twins.both(StillBroker.follow_quotas)

    # -- roles

    def _change_role(self) -> None:
        random = self.random
        name, index = self._some_partition()
        if random.random() < 0.5:
            role: Role = self._leader(name, index, (1,))
        else:
            epoch = self._epoch(name, index)
            role = random.choice(
                (
                    Follower(2, epoch),
                    self._leader(name, index, (1, 2)),
                    Leader(1, epoch, (1, 2), (1,)),
                    *((Absent(2, epoch),) if name == "busy" and random.random() < 0.1 else ()),
                )
            )
        self._take(name, index, role)

    def _epoch(self, name: str, index: int) -> int:
        """Returns a leader epoch that is new, most times."""
        epoch = self._epochs.get((name, index), 0) + (self.random.random() < 0.7)
        self._epochs[name, index] = epoch
        return epoch

    def _leader(self, name: str, index: int, replicas: tuple[int, ...]) -> Leader:
        return Leader(1, self._epoch(name, index), replicas, replicas)

    def _take(self, name: str, index: int, role: Role) -> None:
        def take(it: StillBroker) -> None:
            partition: Any = it.broker.partitions.by_name[name][index]
            same: Any = attrs.evolve(role)  # each has an object of its own
            if not partition.closed:
                partition.take_role(same)
                it.broker.groups.role_changed(name, index)
                it.broker.groups.runtime.settle()

        self.twins.both(take)
        self.twins.settle()

    def _lose_replica(self) -> None:
        """Takes a replica out of the table, as if another node had it, or puts it back."""
        name, index = "busy", 0
        hosted = self.twins.plain.broker.partitions.by_name.get(name)
        if hosted is None:
            return

        def lose(it: StillBroker) -> None:
            table = it.broker.partitions.by_name[name]
            lost = it.lost.pop((name, index), None)
            if lost is None:
                it.lost[name, index], table[index] = table[index], Absent(2, 9)
            else:
                table[index] = lost

        self.twins.both(lose)

    def _toggle_protocol(self) -> None:
        """Disables the consumer protocol as a restart with another configuration would, or enables it again."""
        protocols = self.twins.plain.broker.metadata.config.group_coordinator_rebalance_protocols
        wanted = ("classic",) if "consumer" in protocols else ("classic", "consumer", "streams")

        def toggle(it: StillBroker) -> None:
            metadata = it.broker.metadata
            metadata.config = attrs.evolve(metadata.config, group_coordinator_rebalance_protocols=wanted)

        self.twins.both(toggle)

    # -- transactions

    def _run_transaction(self) -> None:
        name, index = self._some_partition()
        if name not in ("plain", "busy"):
            return
        epoch = self._open.pop((name, index), None)
        if epoch is not None:
            committed = self.random.random() < 0.5

            def end(it: StillBroker) -> None:
                it.broker.partitions.find(name, index).write_marker(
                    producer_id=9,
                    producer_epoch=epoch,
                    committed=committed,
                    coordinator_epoch=0,
                    transaction_version=1,
                    now_ms=it.clock.time_ms,
                )

            self.twins.both(end)
        else:
            self._open[name, index] = 0

            def begin(it: StillBroker) -> None:
                partition = it.broker.partitions.find(name, index)
                known = partition.log.producers.entries.get(9)
                record = Record(value=b"of a transaction", timestamp=it.clock.time_ms)
                batch = memoryview(
                    bytearray(
                        build_batch(
                            [record],
                            producer_id=9,
                            producer_epoch=0,
                            base_sequence=0 if known is None else known.last_sequence + 1,
                            transactional=True,
                        )
                    )
                )
                partition.append(batch, read_header(batch), acks=1, now_ms=it.clock.time_ms)

            self.twins.both(begin)
        self.twins.settle()
