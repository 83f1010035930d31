"""Requests of an administrator to a broker that is killed now and then, and whose disk is full now and then.

Each goes through a connection of its own making, byte by byte as the protocol has it, and is sent again until it was
answered. An answer that was lost leaves it in doubt whether the request was carried out: then the second time "exists
already" and "is unknown" are answers, too, and only then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.wire import ApiMessage

from testkit.kills.group_ledger import Spot
from testkit.raw.client import ConnectionClosed, RawClient

EARLIEST, LATEST = -2, -1
PATIENCE_S = 60.0
_PAUSE_S = 0.02
_TIMEOUT_MS = 10_000
_TOPIC, _BROKER, _SET, _DELETE = 2, 4, 0, 1
_CREATE_VERSION, _GROW_VERSION, _RECORDS_VERSION, _DELETE_VERSION = 7, 3, 2, 6
_CONFIGS_VERSION, _OFFSETS_VERSION, _MOVE_VERSION = 1, 7, 2


class Refused(Exception):
    """An answer that there should not be."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {ErrorCode(code).name}")
        self.code = code


@attrs.define(eq=False)
class Admin:
    """Raises Refused, and AssertionError when the broker gives no answer for `patience_s`."""

    bootstrap: str
    patience_s: float = PATIENCE_S
    _client: RawClient | None = None

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def create(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        configs = [CreatableTopicConfig(*it) for it in config.items()]
        request = CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=configs)], _TIMEOUT_MS)
        what = f"creating {name}"
        self._do(
            what, request, _CREATE_VERSION, lambda it: it.topics[0].error_code, twice=ErrorCode.TOPIC_ALREADY_EXISTS
        )

    def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name)], timeout_ms=_TIMEOUT_MS)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._do(f"deleting {name}", request, _DELETE_VERSION, lambda it: it.responses[0].error_code, twice=unknown)

    def grow(self, name: str, partitions: int) -> None:
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, partitions, None)], _TIMEOUT_MS)
        what = f"growing {name} to {partitions}"
        self._do(what, request, _GROW_VERSION, lambda it: it.results[0].error_code, twice=ErrorCode.INVALID_PARTITIONS)

    def configure(self, name: str, config: Mapping[str, str | None]) -> None:
        """None takes a configuration back."""
        self._configure(_TOPIC, name, config)

    def configure_brokers(self, config: Mapping[str, str | None]) -> None:
        """All of them; None takes a configuration back."""
        self._configure(_BROKER, "", config)

    def _configure(self, kind: int, name: str, config: Mapping[str, str | None]) -> None:
        configs = [AlterableConfig(key, _DELETE if value is None else _SET, value) for key, value in config.items()]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, configs)])
        what = f"configuring {name or 'all brokers'} with {dict(config)}"
        self._do(what, request, _CONFIGS_VERSION, lambda it: it.responses[0].error_code)

    def delete_records(self, spot: Spot, before: int) -> int:
        """Returns the low watermark."""
        topic = DeleteRecordsTopic(spot[0], [DeleteRecordsPartition(spot[1], before)])
        what = f"deleting the records of {spot} before {before}"
        request = DeleteRecordsRequest([topic], _TIMEOUT_MS)
        answer = self._do(what, request, _RECORDS_VERSION, lambda it: it.topics[0].partitions[0].error_code)
        return int(answer.topics[0].partitions[0].low_watermark)

    def move(self, spot: Spot, path: str) -> bool:
        """True if the move has begun; False if the disk of that folder is full."""
        wanted = AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(spot[0], [spot[1]])])

        def code(answer: Any) -> int:
            return int(answer.results[0].partitions[0].error_code)

        answer = self._do(
            f"moving {spot} to {path}",
            AlterReplicaLogDirsRequest([wanted]),
            _MOVE_VERSION,
            code,
            final=ErrorCode.KAFKA_STORAGE_ERROR,
        )
        return code(answer) == ErrorCode.NONE

    def offset(self, spot: Spot, timestamp: int, *, committed: bool = False) -> int:
        """EARLIEST, LATEST, or a time in ms."""
        wanted = ListOffsetsTopic(spot[0], [ListOffsetsPartition(spot[1], timestamp=timestamp)])
        request = ListOffsetsRequest(-1, int(committed), [wanted])
        what = f"asking for an offset of {spot}"
        answer = self._do(what, request, _OFFSETS_VERSION, lambda it: it.topics[0].partitions[0].error_code)
        return int(answer.topics[0].partitions[0].offset)

    def _do(
        self,
        what: str,
        request: ApiMessage,
        version: int,
        code_of: Callable[[Any], int],
        *,
        twice: ErrorCode | None = None,
        final: ErrorCode | None = None,
    ) -> Any:
        """Sends it until it was carried out. `twice` is the answer to the one that comes second."""
        until = time.monotonic() + self.patience_s
        in_doubt = False
        last: object = "no connection"
        while time.monotonic() < until:
            try:
                answer = self._connected().call(request, version)
            except (ConnectionClosed, OSError) as error:
                in_doubt = in_doubt or self._client is not None
                last = error
                self.close()
            else:
                code = code_of(answer)
                if code in (ErrorCode.NONE, final) or (code == twice and in_doubt):
                    return answer
                if code != ErrorCode.KAFKA_STORAGE_ERROR:
                    raise Refused(what, code)
                last = "KAFKA_STORAGE_ERROR"
            time.sleep(_PAUSE_S)
        raise AssertionError(f"{what}: not within {self.patience_s} s ({last})")

    def _connected(self) -> RawClient:
        if self._client is None:
            self._client = RawClient(self.bootstrap)
        return self._client
