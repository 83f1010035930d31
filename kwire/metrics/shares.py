"""Metrics of share groups: the leaders of their partitions, and the share coordinator.

They are Kafka's `ShareGroupMetrics`, `SharePartitionMetrics`, `ShareSessionCache` and `ShareCoordinatorMetrics`, and
those of share groups in `BrokerTopicMetrics`. Metrics of share-partitions have three labels, group, topic and
partition. They are the only metrics whose number grows: with the partitions that have records in flight, or have had
some since the sessions of their group began.
"""

from __future__ import annotations

from typing import Final

from kwire.metrics.coordinators import CoordinatorMetrics
from kwire.metrics.metric import Family, Metric, MetricType, Sample
from kwire.names.topic_names import SHARE_GROUP_STATE
from kwire.runtime.tasks import TimeSlice
from kwire.share.coordinator.service import ShareStateService
from kwire.share.leader.service import SharingService
from kwire.share.leader.states import AcknowledgeType

_COORDINATOR: Final = CoordinatorMetrics("share", SHARE_GROUP_STATE)
_OF_ONE: Final = ("group", "topic", "partition")


def _requests(name: str, what: str) -> Metric:
    return Metric(
        f"kafka_server_brokertopicmetrics_{name.lower()}_total",
        MetricType.COUNTER,
        what,
        kafka=f"kafka.server:type=BrokerTopicMetrics,name={name}PerSec",
    )


def _of_one(name: str, what: str) -> Metric:
    return Metric(
        f"kafka_server_sharepartitionmetrics_{name.lower()}",
        MetricType.GAUGE,
        what,
        _OF_ONE,
        f"kafka.server:type=SharePartitionMetrics,name={name},group=*,topic=*,partition=*",
    )


def _sessions(name: str, what: str) -> Metric:
    return Metric(
        f"kafka_server_sharesessioncache_{name.lower()}",
        MetricType.GAUGE,
        what,
        kafka=f"kafka.server:type=ShareSessionCache,name={name}",
    )


def _own(name: str, type_: MetricType, what: str) -> Metric:
    return Metric(f"kwire_share_{name}", type_, what)


FETCHES: Final = _requests("TotalShareFetchRequests", "ShareFetch requests.")
FAILED_FETCHES: Final = _requests("FailedShareFetchRequests", "ShareFetch requests with an error.")
ACKNOWLEDGES: Final = _requests(
    "TotalShareAcknowledgementRequests", "Requests that acknowledge: ShareAcknowledge, and ShareFetch that does."
)
FAILED_ACKNOWLEDGES: Final = _requests(
    "FailedShareAcknowledgementRequests", "Requests that acknowledge, with an error in that."
)
ACKNOWLEDGED: Final = Metric(
    "kafka_server_sharegroupmetrics_recordacknowledgements_total",
    MetricType.COUNTER,
    "Acknowledged records, by type.",
    ("ackType",),
    "kafka.server:type=ShareGroupMetrics,name=RecordAcknowledgementsPerSec,ackType=*",
)
LOAD_TIMES: Final = Metric(
    "kafka_server_sharegroupmetrics_partitionloadtime_seconds",
    MetricType.SUMMARY,
    "How long the share coordinator took to answer with the state of a share partition.",
    kafka="kafka.server:type=ShareGroupMetrics,name=PartitionLoadTimeMs",
)
FAILED_READS: Final = _own(
    "persister_failed_reads_total", MetricType.COUNTER, "States that the share coordinator did not answer with."
)
WRITES: Final = _own(
    "persister_write_seconds", MetricType.SUMMARY, "How long the share coordinator took to record a change."
)
FAILED_WRITES: Final = _own(
    "persister_failed_writes_total", MetricType.COUNTER, "Changes that the share coordinator did not record."
)
MESSAGES_IN_FLIGHT: Final = _of_one(
    "InFlightMessageCount", "Offsets from the first that is not done to the last that was delivered."
)
BATCHES_IN_FLIGHT: Final = _of_one(
    "InFlightBatchCount", "Batches from the first that is not done to the last that was delivered."
)
TIMED_OUT: Final = Metric(
    "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total",
    MetricType.COUNTER,
    "Records whose lock has timed out, of all groups.",
    kafka="kafka.server:type=SharePartitionMetrics,name=AcquisitionLockTimeoutPerSec,group=*,topic=*,partition=*",
)
SESSIONS: Final = _sessions("ShareSessionsCount", "Share sessions.")
SESSION_PARTITIONS: Final = _sessions("SharePartitionsCount", "Partitions of all share sessions.")
DEAD_LETTERS: Final = _own("dead_letters_total", MetricType.COUNTER, "Records that were copied to a dead-letter topic.")
LOST_DEAD_LETTERS: Final = _own(
    "dead_letters_lost_total",
    MetricType.COUNTER,
    "Records that were archived without a copy, because the dead-letter topic cannot be used.",
)
FAILED_COPIES: Final = _own(
    "dead_letters_failed_total", MetricType.COUNTER, "Attempts to copy that have failed, and are repeated."
)
STATE_WRITES: Final = Metric(
    f"{_COORDINATOR.prefix}write_total",
    MetricType.COUNTER,
    "Changes of share partitions in requests to the share coordinator.",
    kafka=f"{_COORDINATOR.bean} write-total",
)
STATE_WRITE_TIMES: Final = Metric(
    f"{_COORDINATOR.prefix}write_latency_seconds",
    MetricType.SUMMARY,
    "How long requests to record changes took, until they were replicated.",
    kafka=f"{_COORDINATOR.bean} write-latency-avg",
)
STATE_READS: Final = _own(
    "coordinator_reads_total",
    MetricType.COUNTER,
    "States of share partitions that were read from the share coordinator.",
)

_OF_SHARING: Final = (
    FETCHES,
    FAILED_FETCHES,
    ACKNOWLEDGES,
    FAILED_ACKNOWLEDGES,
    ACKNOWLEDGED,
    MESSAGES_IN_FLIGHT,
    BATCHES_IN_FLIGHT,
    TIMED_OUT,
    SESSIONS,
    SESSION_PARTITIONS,
    LOAD_TIMES,
    FAILED_READS,
    WRITES,
    FAILED_WRITES,
    DEAD_LETTERS,
    LOST_DEAD_LETTERS,
    FAILED_COPIES,
)
METRICS: Final = (*_OF_SHARING, STATE_WRITES, STATE_WRITE_TIMES, STATE_READS, *_COORDINATOR.metrics)

_ACKNOWLEDGEMENTS: Final = tuple(it for it in AcknowledgeType if it is not AcknowledgeType.GAP)
"""The types of acknowledgements that are for a record."""


async def read_sharing(sharing: SharingService) -> list[Family]:
    """Returns the metrics of the leaders of partitions."""
    counts = sharing.counts
    messages, batches = await _in_flight(sharing)
    return [
        Family.single(FETCHES, counts.fetches),
        Family.single(FAILED_FETCHES, counts.failed_fetches),
        Family.single(ACKNOWLEDGES, counts.acknowledges),
        Family.single(FAILED_ACKNOWLEDGES, counts.failed_acknowledges),
        Family(ACKNOWLEDGED, [((it.name.capitalize(),), counts.acknowledged[it]) for it in _ACKNOWLEDGEMENTS]),
        Family(MESSAGES_IN_FLIGHT, messages),
        Family(BATCHES_IN_FLIGHT, batches),
        Family.single(TIMED_OUT, counts.timed_out),
        Family.single(SESSIONS, len(sharing.sessions)),
        Family.single(SESSION_PARTITIONS, sharing.sessions.partition_count),
        Family.single(LOAD_TIMES, counts.reads),
        Family.single(FAILED_READS, counts.failed_reads),
        Family.single(WRITES, counts.writes),
        Family.single(FAILED_WRITES, counts.failed_writes),
        Family.single(DEAD_LETTERS, counts.dead_letters),
        Family.single(LOST_DEAD_LETTERS, counts.lost_dead_letters),
        Family.single(FAILED_COPIES, counts.failed_copies),
    ]


async def _in_flight(sharing: SharingService) -> tuple[list[Sample], list[Sample]]:
    messages: list[Sample] = []
    batches: list[Sample] = []
    time_slice = TimeSlice()
    for led in sharing.share_partitions():
        labels = (led.key.group_id, led.partition.topic, str(led.key.partition))
        in_flight = led.machine.in_flight
        messages.append((labels, in_flight.count))
        batches.append((labels, len(in_flight.batches)))
        if time_slice.is_over:
            await time_slice.yield_to_others()
    return messages, batches


def read_states(states: ShareStateService) -> list[Family]:
    """Returns the metrics of the share coordinator."""
    return [
        Family.single(STATE_WRITES, states.requests["write"]),
        Family.single(STATE_WRITE_TIMES, states.write_times),
        Family.single(STATE_READS, states.requests["read"]),
        *_COORDINATOR.read(states.runtime),
    ]
