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
        "How long the first batch of a transaction waits for the end of the producer's last one.",
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
        "The longest session timeout that a member of a classic group may ask for.",
    ),
    row("group.max.size", INT, MAX_INT, Range(1), "The most members that a classic group may have."),
    row(
        "group.min.session.timeout.ms",
        INT,
        6000,
        None,
        "The shortest session timeout that a member of a classic group may ask for.",
    ),
    row("offset.metadata.max.bytes", INT, 4096, None, "The longest note that may accompany a committed offset."),
    row(
        "offsets.retention.check.interval.ms",
        LONG,
        600_000,
        Range(1),
        "How often committed offsets are searched for expired ones.",
    ),
    row(
        "offsets.retention.minutes", INT, 10080, Range(1), "How long the committed offsets of an empty group are kept."
    ),
    row("offsets.topic.num.partitions", INT, 50, Range(1), "Partitions of __consumer_offsets, when it is created."),
    row(
        "offsets.topic.replication.factor",
        SHORT,
        3,
        Range(1),
        "Replicas of __consumer_offsets; never more than there are brokers.",
    ),
    row("offsets.topic.segment.bytes", INT, 104_857_600, Range(1), "segment.bytes of __consumer_offsets."),
    row(
        "producer.id.expiration.check.interval.ms",
        INT,
        600_000,
        Range(1),
        "How often each partition looks for producers that have expired.",
        internal=True,
    ),
    row(
        "producer.id.expiration.ms",
        INT,
        86_400_000,
        Range(1),
        "How long an idle producer's sequence numbers are remembered.",
        CLUSTER_WIDE,
    ),
    row(
        "transaction.max.timeout.ms",
        INT,
        900_000,
        Range(1),
        "The longest transaction.timeout.ms that a producer may ask for.",
    ),
    row(
        "transaction.partition.verification.enable",
        BOOLEAN,
        True,
        None,
        "Whether a partition asks the coordinator if a transaction is open before it takes the first batch of one.",
        CLUSTER_WIDE,
    ),
    row(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        3_600_000,
        Range(1),
        "How often transactional ids are searched for expired ones.",
    ),
    row(
        "transaction.state.log.min.isr",
        INT,
        2,
        Range(1),
        "min.insync.replicas of __transaction_state; never more than there are brokers.",
    ),
    row(
        "transaction.state.log.num.partitions",
        INT,
        50,
        Range(1),
        "Partitions of __transaction_state, when it is created.",
    ),
    row(
        "transaction.state.log.replication.factor",
        SHORT,
        3,
        Range(1),
        "Replicas of __transaction_state; never more than there are brokers.",
    ),
    row("transaction.state.log.segment.bytes", INT, 104_857_600, Range(1), "segment.bytes of __transaction_state."),
    row(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        False,
        None,
        "Whether producers may take part in two-phase commits (KIP-939), whose transactions have no time-out.",
    ),
    row(
        "transactional.id.expiration.ms",
        INT,
        604_800_000,
        Range(1),
        "How long a transactional id without an open transaction is remembered after its last use.",
    ),
)
