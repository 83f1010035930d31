"""A metadata service on a disk in memory, with a clock that stands still and ids that count up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import attrs
from kwire_protocol.internal.metadata_brokers import RegisterBrokerRecord
from kwire_storage.config import LogConfig
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import ServerConfig
from kwire.handlers.authorization import Authorization
from kwire.handlers.context import Context
from kwire.metadata.auto_topic_creation import AutoTopicCreation
from kwire.metadata.bootstrap import register_alone
from kwire.metadata.log import METADATA_TOPIC, METADATA_TOPIC_ID, FileMetadataLog
from kwire.metadata.producer_ids import ProducerIds
from kwire.metadata.records import MetadataRecord
from kwire.metadata.service import MetadataService
from kwire.quotas.client_quotas import ClientQuotas
from kwire.quotas.rates import Window
from kwire.replicas.table import PartitionTable
from kwire.runtime.clock import Clock
from kwire.runtime.futures import at_once
from kwire.security.audit import Audited, AuditLog
from kwire.security.authorizer import AllowAll, Authorizer
from testkit.metadata.distant_log import DistantLog, answered, other_writer_first

T = TypeVar("T")

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
DIRECTORY_ID = b"directory-id-16b"
NOW_MS = 1_700_000_000_000


@attrs.define
class FakeClock:
    """Ids are 1, 2, 3, ... in 16 bytes."""

    ids: int = 0
    time_ms: int = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms

    def uuid(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(16, "big")

    def draw(self, bound: int) -> int:
        return 0


def open_service(
    disk: MemoryDisk | None = None, settings: Mapping[str, str] | None = None, *, ids_from: int = 0
) -> tuple[MetadataService, LogDir]:
    config = ServerConfig.from_properties(settings or {})
    clock = FakeClock(ids_from)
    folder = LogDir.open(disk or MemoryDisk(), cluster_id=CLUSTER_ID, node_id=config.node_id, directory_id=DIRECTORY_ID)
    if (METADATA_TOPIC, 0) in folder.found:
        log = folder.open_log(METADATA_TOPIC, 0, LogConfig(), now_ms=NOW_MS)
    else:
        log = folder.create_log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    service = MetadataService.open(
        config,
        cluster_id=folder.meta.cluster_id,
        log=FileMetadataLog(log, config.node_id, clock.now_ms),
        clock=clock,
    )
    at_once(service.change(register_alone, [folder.meta.directory_id]))
    return service, folder


def distant_service(
    settings: Mapping[str, str] | None = None, *, log: DistantLog | None = None
) -> tuple[MetadataService, DistantLog]:
    """Returns a service over a log that is slow from now on."""
    log = log or DistantLog()
    log.is_slow = False
    clock = FakeClock()
    opened = MetadataService.open(
        ServerConfig.from_properties(settings or {}), cluster_id=CLUSTER_ID, log=log, clock=clock
    )
    at_once(opened.change(register_alone, [DIRECTORY_ID]))
    log.is_slow = True
    return opened, log


is_distant = False
"""True if `service` has a distant log; see the fixture in conftest.py."""


def service(settings: Mapping[str, str] | None = None, *, brokers: int = 1) -> MetadataService:
    """A new cluster of this broker and, for the rules about replicas, others that are only registered."""
    if is_distant:
        opened, log = distant_service(settings)
        log.others = other_writer_first(log)
    else:
        opened, _ = open_service(settings=settings)
    for number in range(2, brokers + 1):
        record(opened, RegisterBrokerRecord(broker_id=number, rack=None, fenced=False, log_dirs=[bytes([number]) * 16]))
    return opened


def record(service: MetadataService, *records: MetadataRecord) -> None:
    """Appends records to the log that no request of this broker causes."""
    answered(service.change(lambda _: (list(records), None)))


@attrs.frozen
class Node:
    node_id: int
    host: str
    port: int
    rack: str | None


@attrs.frozen
class FakeNodes:
    """Every live broker, at the address that the client dialled."""

    metadata: MetadataService

    @property
    def controller_id(self) -> int:
        return self.metadata.node_id

    def endpoints(self, context: Context) -> list[Node]:
        return [
            Node(it.broker_id, context.local_host, context.local_port, it.rack)
            for it in self.metadata.image.live_brokers()
        ]


@attrs.define(eq=False)
class FakeBroker:
    """The services that these handlers use."""

    metadata: MetadataService
    authorizer: Authorizer = attrs.field(factory=AllowAll)
    client_quotas: ClientQuotas = attrs.field(
        factory=lambda: ClientQuotas(Window.of(11, 1), Window.of(11, 1), lambda: 0)
    )
    transactions: Any = None
    producer_ids: ProducerIds = attrs.field(init=False)
    nodes: FakeNodes = attrs.field(init=False)
    authorization: Authorization = attrs.field(init=False)
    auto_topic_creation: AutoTopicCreation = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        audit = AuditLog(Audited.NOTHING, as_json=False, now_ms=lambda: 0)
        self.producer_ids = ProducerIds(self.metadata)
        self.nodes = FakeNodes(self.metadata)
        self.authorization = Authorization(self.authorizer, audit, self.metadata, cast(PartitionTable, None))
        self.auto_topic_creation = AutoTopicCreation(self.metadata)

    @property
    def clock(self) -> Clock:
        return self.metadata.clock


def context(version: int, *, port: int = 9092) -> Context:
    return Context(
        client_host="127.0.0.1",
        local_host="127.0.0.1",
        local_port=port,
        api_version=version,
    )


def lacks(message: str | None, *facts: str) -> list[str]:
    """Returns the facts that an error's message lacks; without facts there must be no message."""
    if not facts:
        return [] if message is None else [f"no message, but: {message}"]
    return [fact for fact in facts if fact not in (message or "")]
