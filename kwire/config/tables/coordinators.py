"""The broker configurations of groups, committed offsets, transactions and producers."""

from __future__ import annotations

from typing import Final

from kwire.config.definition import table
from kwire.config.tables.rows import BOOLEAN, CLUSTER_WIDE, INT, LONG, MAX_INT, SHORT, row
from kwire.config.validators import Range

COORDINATOR_CONFIGS: Final = table(
    row(
        "add.partitions.to.txn.retry.backoff.max.ms",
        INT,
        100,
        Range(0),
        "How long the first batch of a transaction waits for the producer's previous transaction to end.",
    ),
    row(
        "add.partitions.to.txn.retry.backoff.ms",
        INT,
        20,
        Range(1),
        "How long to pause before a coordinator on another broker is asked again whether it has ended.",
    ),
    row(
        "group.initial.rebalance.delay.ms",
        INT,
        0,
        None,
        "How long an empty classic group waits for more members before its first generation.",
    ),
    row(
        "group.max.session.timeout.ms",
        INT,
        1_800_000,
        None,
        "The maximum session timeout of members of classic groups.",
    ),
    row("group.max.size", INT, MAX_INT, Range(1), "The maximum number of members of a classic group."),
    row(
        "group.min.session.timeout.ms",
        INT,
        6000,
        None,
        "The minimum session timeout of members of classic groups.",
    ),
    row("offset.metadata.max.bytes", INT, 4096, None, "The maximum size of the metadata of a committed offset."),
    row(
        "offsets.retention.check.interval.ms",
        LONG,
        600_000,
        Range(1),
        "How often expired offsets are removed.",
    ),
    row(
        "offsets.retention.minutes", INT, 10080, Range(1), "How long the committed offsets of an empty group are kept."
    ),
    row(
        "offsets.topic.num.partitions",
        INT,
        50,
        Range(1),
        "The number of partitions of __consumer_offsets when it is created.",
    ),
    row(
        "offsets.topic.replication.factor",
        SHORT,
        3,
        Range(1),
        "The replication factor of __consumer_offsets, limited to the number of brokers.",
    ),
    row("offsets.topic.segment.bytes", INT, 104_857_600, Range(1), "segment.bytes of __consumer_offsets."),
    row(
        "producer.id.expiration.check.interval.ms",
        INT,
        600_000,
        Range(1),
        "How often expired producers are removed.",
        internal=True,
    ),
    row(
        "producer.id.expiration.ms",
        INT,
        86_400_000,
        Range(1),
        "How long the state of an idle producer is kept.",
        CLUSTER_WIDE,
    ),
    row(
        "transaction.max.timeout.ms",
        INT,
        900_000,
        Range(1),
        "The maximum transaction.timeout.ms of producers.",
    ),
    row(
        "transaction.partition.verification.enable",
        BOOLEAN,
        True,
        None,
        "Whether a partition verifies that a transaction is open before it accepts its first batch.",
        CLUSTER_WIDE,
    ),
    row(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        3_600_000,
        Range(1),
        "How often expired transactional ids are removed.",
    ),
    row(
        "transaction.state.log.min.isr",
        INT,
        2,
        Range(1),
        "min.insync.replicas of __transaction_state, limited to the number of brokers.",
    ),
    row(
        "transaction.state.log.num.partitions",
        INT,
        50,
        Range(1),
        "The number of partitions of __transaction_state when it is created.",
    ),
    row(
        "transaction.state.log.replication.factor",
        SHORT,
        3,
        Range(1),
        "The replication factor of __transaction_state, limited to the number of brokers.",
    ),
    row("transaction.state.log.segment.bytes", INT, 104_857_600, Range(1), "segment.bytes of __transaction_state."),
    row(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        False,
        None,
        "Whether producers may use two-phase commit (KIP-939), whose transactions do not time out.",
    ),
    row(
        "transactional.id.expiration.ms",
        INT,
        604_800_000,
        Range(1),
        "How long an unused transactional id without an open transaction is kept.",
    ),
)
