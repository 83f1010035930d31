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
        "The addresses that clients are told to use; without it each client is told the one it dialled.",
    ),
    row("auto.create.topics.enable", BOOLEAN, True, None, "Whether a producer that names an unknown topic creates it."),
    row("broker.id", INT, -1, None, "An older name of node.id."),
    row("broker.rack", STRING, None, None, "The rack that this broker says it stands in."),
    row("connections.max.idle.ms", LONG, 600_000, None, "A connection that is silent for this long is closed."),
    row(
        "controller.listener.names",
        LIST,
        (),
        ListOf(),
        "Listeners of a Kafka controller; kwire needs none and does not open them.",
    ),
    row(
        "default.replication.factor",
        INT,
        1,
        None,
        "Replicas of a topic that does not say how many; never more than there are brokers.",
    ),
    row("delete.topic.enable", BOOLEAN, True, None, "Whether topics may be deleted."),
    row(
        "fetch.max.bytes",
        INT,
        57_671_680,
        Range(1024),
        "The most bytes that one fetch is answered with, whatever the client asks for.",
    ),
    row("inter.broker.listener.name", STRING, None, None, "The listener that brokers use among themselves."),
    row(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None,
        "Which security protocol each listener name stands for.",
    ),
    row(
        "listeners",
        LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        ListOf(),
        "The addresses the broker listens on: name://host:port, several separated by commas; port 0 takes a free one.",
    ),
    row("log.dir", LIST, ("./data",), ListOf(), "The data folder; log.dirs wins over it."),
    row("log.dirs", LIST, None, ListOf(), "The data folders; a new partition goes into the one that has the fewest."),
    row(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        60000,
        Range(0),
        "How often the point up to which logs are flushed is written down.",
    ),
    row(
        "log.retention.check.interval.ms",
        LONG,
        300_000,
        Range(1),
        "How often the logs are searched for segments to delete.",
    ),
    row(
        "max.connections",
        INT,
        MAX_INT,
        Range(0),
        "The most connections held open; further ones wait to be accepted.",
        CLUSTER_WIDE,
    ),
    row(
        "max.connections.per.ip",
        INT,
        MAX_INT,
        Range(0),
        "The most connections from one address; further ones are closed.",
        CLUSTER_WIDE,
    ),
    row(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1000,
        Range(0),
        "The most fetch sessions (KIP-227) remembered.",
    ),
    row(
        "max.request.partition.size.limit",
        INT,
        2000,
        Range(1),
        "The most partitions that one DescribeTopicPartitions answer lists.",
    ),
    row(
        "metadata.log.dir",
        STRING,
        None,
        None,
        "The folder of the metadata log, which may be one of log.dirs or another; the first of log.dirs if not set.",
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
    row("num.partitions", INT, 1, Range(1), "Partitions of a topic that does not say how many."),
    row(
        "num.recovery.threads.per.data.dir",
        INT,
        2,
        Range(1),
        "How many logs of each data folder are checked side by side after an unclean stop.",
        CLUSTER_WIDE,
    ),
    row(
        "process.roles",
        LIST,
        ("broker", "controller"),
        ListOf(("broker", "controller")),
        "What this process is: kwire is broker and controller in one.",
    ),
    row(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        MAX_LONG,
        Range(0),
        "How fast partitions are copied from one log folder to another, at most.",
        CLUSTER_WIDE,
        # Like Kafka, which describes it only where it is set.
        internal=True,
    ),
    row("socket.listen.backlog.size", INT, 1024, Range(1), "How many connections may wait to be accepted."),
    row("socket.receive.buffer.bytes", INT, -1, None, "The sockets' receive buffer; -1 leaves it to the system."),
    row(
        "socket.request.max.bytes",
        INT,
        104_857_600,
        Range(1),
        "The largest request taken; a larger one closes its connection.",
    ),
    # Kafka: 102400. On one machine, what is in flight leaves the caches with that, and a fetch costs a third more.
    row(
        "socket.send.buffer.bytes",
        INT,
        65_536,
        None,
        "The sockets' send buffer, four times that where a reader is slow; -1 leaves it to the system.",
    ),
    row(
        "unstable.api.versions.enable",
        BOOLEAN,
        False,
        None,
        "Whether versions of APIs are served that Kafka's developers may still change: InitProducerId v6 (KIP-939).",
        internal=True,
    ),
)
