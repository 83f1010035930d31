"""A stream on a cluster continues when a node is killed: each record once, none lost."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from testkit.servers.brokers import three_nodes
from testkit.spark.records import numbered, produce
from testkit.spark.tables import READER_DEFAULTS, Tables, collecting, until

TOPIC = "t"
PARTITIONS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


@pytest.mark.soak
def test_a_leader_killed_under_a_busy_query_costs_nothing(spark: SparkSession) -> None:
    with three_nodes() as cluster:
        everywhere = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": everywhere})
        wanted = NewTopic(TOPIC, len(PARTITIONS), replica_assignment=PARTITIONS, config={"min.insync.replicas": "2"})
        admin.create_topics([wanted])[TOPIC].result(30)
        produce(everywhere, TOPIC, numbered(3000, partitions=3))
        stream = Tables(spark, everywhere, READER_DEFAULTS).stream(
            subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger=300
        )
        with collecting(stream) as collected:
            until(collected.query, lambda: bool(collected.batch_sizes()), "the first micro-batch is done")
            cluster.kill(1)
            assert sum(collected.batch_sizes()) < 3000, "the query was done before the node was killed"
            produce(cluster.bootstrap_servers, TOPIC, numbered(300, first=3000, partitions=3))
            assert collected.numbers() == list(range(3300))
