"""The controller's log names partitions that go offline, once, and again when they are back."""

from __future__ import annotations

import pytest
from kwire_protocol.internal.metadata_topics import RemoveTopicRecord

from kwire.cluster.offline_partitions import OfflinePartitions
from kwire.metadata.controller import brokers
from kwire.metadata.controller.deciding import Records
from kwire.metadata.image import Changes
from testkit.metadata.image_cluster import TOPIC_ID, Cluster


def take(cluster: Cluster, offline: OfflinePartitions, records: Records, *, should_log: bool = True) -> None:
    changes = Changes()
    for record in records:
        cluster.image.apply(record, offset=cluster.image.offset + 1, changes=changes)
    offline.follow(changes, should_log=should_log)


def end_of(cluster: Cluster, broker_id: int) -> Records:
    return brokers.fence(cluster.state, [broker_id])[0]


def return_of(cluster: Cluster, broker_id: int) -> Records:
    return brokers.unfence(cluster.state, broker_id, cluster.image.brokers[broker_id].broker_epoch)


def test_partitions_are_named_when_they_go_offline_and_when_they_are_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    cluster = Cluster()
    for replicas in ((1,), (2, 1), (1,)):
        cluster.add(*replicas)
    offline = OfflinePartitions.of(cluster.image)
    take(cluster, offline, end_of(cluster, 1))
    assert caplog.messages == ["offline, because no replica that may lead is in service: t-0, t-2"]
    take(cluster, offline, return_of(cluster, 1))
    assert caplog.messages[1:] == ["online again: t-0, t-2"]


def test_of_many_partitions_ten_are_named(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    for _ in range(12):
        cluster.add(1)
    take(cluster, OfflinePartitions.of(cluster.image), end_of(cluster, 1))
    assert caplog.messages[0].endswith("t-9 and 2 more")


def test_only_the_controller_logs_and_what_was_offline_before_is_known(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    cluster = Cluster()
    cluster.add(1)
    offline = OfflinePartitions.of(cluster.image)
    take(cluster, offline, end_of(cluster, 1), should_log=False)
    assert caplog.messages == []
    again = OfflinePartitions.of(cluster.image)
    take(cluster, again, return_of(cluster, 1))
    assert caplog.messages == ["online again: t-0"]


def test_a_deleted_partition_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.add(1)
    offline = OfflinePartitions.of(cluster.image)
    take(cluster, offline, end_of(cluster, 1))
    take(cluster, offline, [RemoveTopicRecord(TOPIC_ID)])
    assert not offline._offline
