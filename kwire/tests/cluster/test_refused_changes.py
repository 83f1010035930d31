"""Changes that a node cannot record while the metadata log takes nothing are recorded later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import attrs
import pytest
import trio
import trio.testing
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.cluster.service import RECORDED_LATER_S, record_later
from kwire.metadata.service import MetadataService
from kwire.node.broker import Broker
from testkit.cluster.scripted_cluster import ScriptedCluster, create
from testkit.scenes.folder_scene import EIO


@attrs.define
class Refusing:
    """The metadata of a node whose log refuses that many changes."""

    metadata: MetadataService
    refusals: int

    async def change(self, *request: Any) -> Any:
        if self.refusals:
            self.refusals -= 1
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "refused")
        return await self.metadata.change(*request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.metadata, name)


def refuse(broker: Broker, refusals: int) -> None:
    assert broker.member is not None
    broker.member.metadata = cast(MetadataService, Refusing(broker.metadata, refusals))


def in_service(broker: Broker) -> list[int]:
    return [it.broker_id for it in broker.metadata.image.live_brokers()]


def while_it_tries_again(broker: Broker, scenario: Callable[[], Any]) -> None:
    async def main() -> None:
        assert broker.member is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(record_later, broker.member)
            await trio.testing.wait_all_tasks_blocked()
            await scenario()
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("refusals", [1, 3])
def test_a_node_comes_into_service_although_its_first_attempts_were_refused(refusals: int) -> None:
    cluster = ScriptedCluster()
    one, two = cluster.open(1), cluster.open(2, serves=False)
    refuse(two, refusals)

    async def scenario() -> None:
        assert two.member is not None
        two.member.serve()
        await trio.sleep((refusals - 0.5) * RECORDED_LATER_S)
        assert in_service(one) == [1]
        await trio.sleep(RECORDED_LATER_S)
        assert in_service(one) == in_service(two) == [1, 2]

    while_it_tries_again(two, scenario)


def test_a_node_that_has_ended_is_fenced_although_the_first_attempt_was_refused() -> None:
    cluster = ScriptedCluster()
    one, _ = cluster.open(1), cluster.open(2)
    refuse(one, 1)

    async def scenario() -> None:
        cluster.kill(2)
        assert in_service(one) == [1, 2]
        await trio.sleep(1.5 * RECORDED_LATER_S)
        assert in_service(one) == [1]

    while_it_tries_again(one, scenario)


def replicas_in_sync(of: Broker) -> list[list[int]]:
    return [sorted(it.isr) for it in of.metadata.image.topics["t"].partitions]


@pytest.mark.parametrize("refusals", [0, 1, 3])
def test_a_failed_log_dir_is_given_up_although_the_first_attempts_were_refused(refusals: int) -> None:
    cluster = ScriptedCluster()
    one, two = cluster.open(1), cluster.open(2, log_dirs=2)
    create(one, "t", 2, replication_factor=2)
    refuse(two, refusals)

    async def scenario() -> None:
        two.take_offline(two.log_dirs.dirs[0], EIO)
        await trio.sleep(max(refusals - 0.5, 0) * RECORDED_LATER_S)
        if refusals:
            assert replicas_in_sync(one) == [[1, 2], [1, 2]]
        await trio.sleep(RECORDED_LATER_S)
        assert sorted(replicas_in_sync(one)) == [[1], [1, 2]]

    while_it_tries_again(two, scenario)
