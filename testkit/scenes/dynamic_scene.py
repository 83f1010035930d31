"""A running broker whose configuration a test changes."""

from __future__ import annotations

import time

import attrs
import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kwire_protocol.records import Record, build_batch
from trio.testing import wait_all_tasks_blocked

from kwire.node.broker import Broker
from kwire.replicas.partition import Partition
from testkit.scenes.partition_files import log_files
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient

SET, DELETE = 0, 1


CLEANER_BACKOFF_MS = 1000


@attrs.define
class RestlessTime:
    """The module `time` for a thread that sleeps: the time has passed then without a wait."""

    rested_s: float = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.rested_s

    def sleep(self, seconds: float) -> None:
        self.rested_s += seconds


@attrs.define(eq=False)
class Scene:
    """A server with topic `t` in one of two folders."""

    server: ServerInTrio
    client: TrioClient
    caplog: pytest.LogCaptureFixture
    cleaners_time: RestlessTime

    @property
    def broker(self) -> Broker:
        return self.server.broker

    @property
    def partition(self) -> Partition:
        return self.server.partition

    @property
    def now_ms(self) -> int:
        return self.broker.clock.now_ms()

    async def set(self, resource: int, name: str, config: str, value: str) -> None:
        request = IncrementalAlterConfigsRequest(
            [AlterConfigsResource(resource, name, [AlterableConfig(config, SET, value)])]
        )
        (answer,) = (await self.client.call(request, 1)).responses
        assert answer.error_code == ErrorCode.NONE, answer.error_message

    async def send(
        self, batch: bytes | bytearray, *, version: int = 11, transactional_id: str | None = None
    ) -> PartitionProduceResponse:
        data = TopicProduceData("t", partition_data=[PartitionProduceData(0, bytes(batch))])
        response = await self.client.call(ProduceRequest(transactional_id, -1, 10_000, [data]), version)
        answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return answer

    async def append(
        self, *values: bytes | None, key: bytes | None = b"k", at_ms: int | None = None
    ) -> PartitionProduceResponse:
        """Appends one batch, with the current time by default."""
        timestamp = self.now_ms if at_ms is None else at_ms
        return await self.send(build_batch([Record(timestamp=timestamp, key=key, value=value) for value in values]))

    def roll(self) -> None:
        log_files(self.partition).roll(self.now_ms)

    async def let_clean(self, seconds: float = 3 * CLEANER_BACKOFF_MS / 1000) -> int:
        """Lets the cleaner check the log at least twice; returns the number of cleanings."""
        logged_before = len(self.caplog.messages)
        await trio.sleep(seconds)
        return sum(message.startswith("compacted t-0 ") for message in self.caplog.messages[logged_before:])

    async def is_served(self, client: TrioClient) -> bool:
        await client.send((ApiVersionsRequest(), 0))
        await wait_all_tasks_blocked()
        return client.has_answer
