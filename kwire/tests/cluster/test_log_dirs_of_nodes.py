"""Log dirs of nodes: each node places its replicas, reports that, and gives up those of a failed one."""

from __future__ import annotations

from kwire_protocol.wire import NULL_UUID

from testkit.cluster.scripted_cluster import ScriptedCluster, create
from testkit.scenes.folder_scene import EIO


def test_a_node_with_several_log_dirs_reports_the_directories_of_replicas_that_another_one_has_placed() -> None:
    cluster = ScriptedCluster()
    one, two = cluster.open(1), cluster.open(2, log_dirs=3)
    create(one, "t", 8)
    ids = [it.meta.directory_id for it in two.log_dirs.dirs]
    placed = [it for it in one.metadata.image.topics["t"].partitions if it.replicas == (2,)]
    assert len(placed) == 4
    assert {it.directory_of(2) for it in placed} == set(ids)
    assert one.metadata.image.topics == two.metadata.image.topics
    for partition in two.partitions:
        folder = two.partitions.folder_of(partition)
        assert folder is not None
        assert folder.meta.directory_id == partition.directory_id != NULL_UUID


def test_a_failed_log_dir_costs_a_broker_of_a_cluster_only_what_is_in_it() -> None:
    cluster = ScriptedCluster()
    one, two = cluster.open(1), cluster.open(2, log_dirs=2)
    create(one, "t", 4)
    two.take_offline(two.log_dirs.dirs[0], EIO)
    assert two.fatal is None
    assert len(list(two.partitions)) == 1
    two.take_offline(two.log_dirs.dirs[1], EIO)
    assert two.fatal is not None
