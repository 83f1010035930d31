"""The broker configurations of the server itself: addresses, connections, folders, topics, housekeeping."""

from __future__ import annotations

from typing import Final

from kwire.config.definition import table
from kwire.config.tables.rows import BOOLEAN, CLUSTER_WIDE, INT, LIST, LONG, MAX_INT, MAX_LONG, STRING, row
from kwire.config.validators import ListOf, Range

SERVER_CONFIGS: Final = table(
    row(
        "advertised.listeners",
        LIST,
        None,
        ListOf(),
        "The addresses that clients use. If not set, each client is told the address that it dialled.",
    ),
    row(
        "auto.create.topics.enable",
        BOOLEAN,
        True,
        None,
        "Whether a Metadata request for an unknown topic may create it.",
    ),
    row("broker.id", INT, -1, None, "An older name of node.id."),
    row("broker.rack", STRING, None, None, "The rack of this broker."),
    row("connections.max.idle.ms", LONG, 600_000, None, "Idle connections are closed after this time."),
    row(
        "controller.listener.names",
        LIST,
        (),
        ListOf(),
        "Listeners of a Kafka controller. kwire does not open them.",
    ),
    row(
        "default.replication.factor",
        INT,
        1,
        None,
        "The replication factor of topics that do not set one, limited to the number of brokers.",
    ),
    row("delete.topic.enable", BOOLEAN, True, None, "Whether topics may be deleted."),
    row(
        "fetch.max.bytes",
        INT,
        57_671_680,
        Range(1024),
        "The maximum size of a fetch response.",
    ),
    row("inter.broker.listener.name", STRING, None, None, "The listener for traffic between brokers."),
    row(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None,
        "The security protocol of each listener name.",
    ),
    row(
        "listeners",
        LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        ListOf(),
        "The addresses to listen on: name://host:port, separated by commas. Port 0 picks a free port.",
    ),
    row("log.dir", LIST, ("./data",), ListOf(), "The log dir; log.dirs overrides it."),
    row(
        "log.dirs",
        LIST,
        None,
        ListOf(),
        "The log dirs. A new partition goes to the one with the fewest partitions.",
    ),
    row(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        60000,
        Range(0),
        "How often the recovery points of logs are checkpointed.",
    ),
    row(
        "log.retention.check.interval.ms",
        LONG,
        300_000,
        Range(1),
        "How often logs are checked for segments to delete.",
    ),
    row(
        "max.connections",
        INT,
        MAX_INT,
        Range(0),
        "The maximum number of connections. Further connections wait to be accepted.",
        CLUSTER_WIDE,
    ),
    row(
        "max.connections.per.ip",
        INT,
        MAX_INT,
        Range(0),
        "The maximum number of connections from one address. Further connections are closed.",
        CLUSTER_WIDE,
    ),
    row(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1000,
        Range(0),
        "The maximum number of cached fetch sessions (KIP-227).",
    ),
    row(
        "max.request.partition.size.limit",
        INT,
        2000,
        Range(1),
        "The maximum number of partitions in a DescribeTopicPartitions response.",
    ),
    row(
        "metadata.log.dir",
        STRING,
        None,
        None,
        "The folder of the metadata log, by default the first of log.dirs.",
    ),
    row(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        # 20 MiB in Kafka: a start of kwire's takes about half a second for each that it has to replay.
        1 << 20,
        Range(1),
        "After so many bytes of the metadata log a snapshot is written, and what it stands for is deleted.",
    ),
    row(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        3_600_000,
        Range(0),
        "After this time a change of the metadata is followed by a snapshot, however little was written; 0 for never.",
    ),
    row("node.id", INT, 1, Range(0), "This broker's number in its cluster."),
    row("num.partitions", INT, 1, Range(1), "The number of partitions of topics that do not set one."),
    row(
        "num.recovery.threads.per.data.dir",
        INT,
        2,
        Range(1),
        "The number of logs per log dir that are recovered concurrently after an unclean stop.",
        CLUSTER_WIDE,
    ),
    row(
        "process.roles",
        LIST,
        ("broker", "controller"),
        ListOf(("broker", "controller")),
        "The roles of this process; kwire is both broker and controller.",
    ),
    row(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        MAX_LONG,
        Range(0),
        "The maximum rate, in bytes per second, of copying partitions between log dirs.",
        CLUSTER_WIDE,
        # As in Kafka, which describes it only if it is set.
        internal=True,
    ),
    row("socket.listen.backlog.size", INT, 1024, Range(1), "The maximum number of connections waiting to be accepted."),
    row(
        "socket.receive.buffer.bytes",
        INT,
        -1,
        None,
        "The receive buffer of sockets; -1 uses the operating system's default.",
    ),
    row(
        "socket.request.max.bytes",
        INT,
        104_857_600,
        Range(1),
        "The maximum size of a request. A larger one closes the connection.",
    ),
    # Kafka: 102400. On one machine, that much data in flight does not fit the caches, and a fetch costs a third more.
    row(
        "socket.send.buffer.bytes",
        INT,
        65_536,
        None,
        "The send buffer of sockets, times four for slow readers; -1 uses the operating system's default.",
    ),
    row(
        "unstable.api.versions.enable",
        BOOLEAN,
        False,
        None,
        "Whether to serve API versions that Kafka may still change: InitProducerId v6 (KIP-939).",
        internal=True,
    ),
)
