"""Nodes that are killed, stopped and restarted under load lose and repeat nothing that was acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.dumps import assert_kafka_is_content
from compat_tests.everything_at_once.judging import check_logs
from compat_tests.java_host import java_host
from kwire.tests.cluster.faults import ClusterOfProcesses, Load, TransactionalLoad, faults, read_all


@pytest.mark.parametrize(
    ("count", "seed"), [(20, 1618), *(pytest.param(100, seed, marks=pytest.mark.soak) for seed in range(5))]
)
def test_nothing_acknowledged_is_lost_or_repeated_whatever_befalls_the_nodes(
    tmp_path: Path, count: int, seed: int
) -> None:
    with ClusterOfProcesses(tmp_path) as cluster:
        with Load(cluster) as load:
            for fault in faults(seed, count):
                cluster.suffer(fault)
        cluster.wait_until_whole()
        found = read_all(cluster)
    assert load.errors == [], "a client with the default retries notices nothing"
    assert all(len(values) > 100 for values in load.acknowledged)
    for values, acknowledged in zip(found, load.acknowledged, strict=True):
        assert values == acknowledged
        numbers = [int(values[offset]) for offset in sorted(values)]
        assert numbers == sorted(set(numbers))
    assert_disks(cluster)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_transactions_are_all_or_nothing_whatever_befalls_the_nodes(tmp_path: Path, seed: int) -> None:
    with ClusterOfProcesses(tmp_path) as cluster:
        with TransactionalLoad(cluster) as load:
            for fault in faults(seed, 40):
                cluster.suffer(fault)
        cluster.wait_until_whole()
        found = [sorted(values.values()) for values in read_all(cluster)]
    assert len(load.committed) > 20
    for values in found:
        assert values == found[0], "each partition has the same"
        assert len(set(values)) == len(values), "nothing twice"
        assert load.committed <= set(values) <= load.committed | load.unknown
    assert_disks(cluster)


def assert_disks(cluster: ClusterOfProcesses) -> None:
    """Replicas are the same bytes; neither `kwire log check` nor Kafka's DumpLogSegments complains."""
    assert all(len(hashes) == 1 for hashes in cluster.hashes())
    complaints: list[str] = []
    for data_dir in cluster.data_dirs():
        assert check_logs([data_dir], complaints.append) > 0
    assert complaints == []
    with java_host() as java:
        assert assert_kafka_is_content(java, *cluster.data_dirs()) > 0
    assert cluster.bugs() == []
