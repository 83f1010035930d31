"""DeleteRecords in a world of brokers."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from kwire_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

from kwire.handlers import delete_records
from kwire.handlers.apis import bound
from kwire.handlers.context import Context
from kwire.runtime.futures import Future
from testkit.worlds.replication.world import NODES, TOPIC, World

TIMEOUT_MS = 30_000


def leader_of(world: World) -> int:
    (leader,) = world.leaders
    return leader


def followers_of(world: World) -> list[int]:
    return [it for it in NODES if it != leader_of(world)]


def deleted(world: World, offset: int) -> DeleteRecordsResponse | Coroutine[Future[Any], None, DeleteRecordsResponse]:
    request = DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, offset)])], TIMEOUT_MS)
    context = Context("client", "127.0.0.1", 9092, api_version=2)
    return bound(delete_records.handle, world.brokers[leader_of(world)])(request, context)


class Deletion:
    """A request that waits for other replicas."""

    def __init__(self, world: World, offset: int) -> None:
        handling = deleted(world, offset)
        assert isinstance(handling, Coroutine), "it waits"
        self.handling = handling
        self.future = handling.send(None)

    def is_answered(self) -> bool:
        return self.future.is_set

    def answer(self) -> tuple[int, int]:
        """The error and the low watermark."""
        with pytest.raises(StopIteration) as ended:
            self.handling.send(None)
        return found(ended.value.value)


def found(response: DeleteRecordsResponse) -> tuple[int, int]:
    result = response.topics[0].partitions[0]
    return result.error_code, result.low_watermark


def the_answer_waits_until_every_live_replica_has_deleted_the_records(world: World) -> None:
    request = Deletion(world, 4)
    for follower in followers_of(world):
        assert not request.is_answered()
        world.fetch(follower)  # it receives the new start,
        world.fetch(follower)  # and reports its own
    assert request.is_answered()
    assert request.answer() == (0, 4)
