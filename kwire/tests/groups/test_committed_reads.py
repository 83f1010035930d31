"""OffsetFetch on a broker whose flushes the test triggers: uncommitted offsets are not returned."""

from __future__ import annotations

import errno
from collections.abc import Coroutine
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kwire_protocol.wire import ApiMessage
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.handlers.apis import APIS
from kwire.node.broker import Broker
from testkit.metadata.harness import FakeClock, context
from testkit.scenes.direct.broker_driver import BrokerDriver
from testkit.scenes.internal_topics import FEW_PARTITIONS, create_internal_topics


class PendingRequest:
    """A request under way; what its handler waits for is not awaited."""

    def __init__(self, broker: Broker, request: ApiMessage, version: int) -> None:
        handle = APIS[request.api_key].handler(broker)
        self._handling: Any = handle(request, context(version))
        self.answer: Any = None
        self.resume()

    @property
    def is_answered(self) -> bool:
        return self.answer is not None

    def resume(self) -> None:
        if not isinstance(self._handling, Coroutine):
            self.answer = self._handling
            return
        try:
            self._handling.send(None)
        except StopIteration as answered:
            self.answer = answered.value


class Scene:
    """Group `g` has committed 1 for partition 0 of `t`, and all is flushed; what it commits next is not."""

    def __init__(self) -> None:
        clock = FakeClock()
        config = load_config(settings=[*FEW_PARTITIONS, "log.flush.interval.messages=1"])
        self.broker = Broker.open(config, MemoryDisk(), clock)
        self.driver = BrokerDriver(self.broker, clock)
        create_internal_topics(self.broker)
        self.driver.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000), 7)
        self.commit(1)
        self.driver.flush()

    def commit(self, offset: int) -> PendingRequest:
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
        return PendingRequest(self.broker, OffsetCommitRequest(group_id="g", topics=[topic]), 9)

    def fetch(self, version: int) -> PendingRequest:
        if version < 8:
            return PendingRequest(self.broker, OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])]), version)
        group = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])
        return PendingRequest(self.broker, OffsetFetchRequest(groups=[group]), version)


def error_and_offset(answer: Any, version: int) -> tuple[int, int]:
    """Returns error and offset."""
    group = answer if version < 8 else answer.groups[0]
    found = group.topics[0].partitions[0].committed_offset if group.topics else -1
    return group.error_code, found


@pytest.mark.parametrize("version", [7, 9])
def test_an_offset_is_returned_once_it_is_committed(version: int) -> None:
    scene = Scene()
    assert error_and_offset(scene.fetch(version).answer, version) == (ErrorCode.NONE, 1)
    commit = scene.commit(2)
    fetch = scene.fetch(version)
    assert not commit.is_answered
    assert not fetch.is_answered
    scene.driver.flush()
    fetch.resume()
    assert error_and_offset(fetch.answer, version) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize("version", [1, 7, 9])
def test_an_offset_that_cannot_be_committed_is_not_returned(version: int) -> None:
    scene = Scene()
    scene.commit(2)
    fetch = scene.fetch(version)
    assert not fetch.is_answered
    scene.broker.take_offline(scene.broker.log_dirs.dirs[0], OSError(errno.EIO, "the disk is gone"))
    fetch.resume()
    if version == 1:
        assert fetch.answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    else:
        assert error_and_offset(fetch.answer, version) == (ErrorCode.NOT_COORDINATOR, -1)
