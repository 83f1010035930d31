"""A hanging transaction: it is open in a partition, and no coordinator has it.

Brokers before KIP-890 could cause one, and so can ours if they do not verify the partition at the coordinator.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from testkit.basics.waiting import eventually
from testkit.clients.transactions.client import Spot
from testkit.raw.client import RawClient
from testkit.raw.nodes import each

PRODUCER_ID = 7_000_000
AN_HOUR_MS = 3_600_000

_BROKERS = 4
_SET, _DELETE = 0, 1
# The last version before the producer's word is enough to begin a transaction (transaction version 2).
_ADDS_NOTHING = 11


def an_hour_ago_ms() -> int:
    return int(time.time() * 1000) - AN_HOUR_MS


def leave_hanging(bootstrap: str, spot: Spot) -> None:
    """Writes a record of producer `PRODUCER_ID` in a transaction that began an hour ago, and will not be ended."""
    topic, index = spot
    record = Record(value=b"hanging", timestamp=an_hour_ago_ms())
    batch = build_batch([record], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0, transactional=True)
    request = ProduceRequest(
        "nobody's", -1, 10_000, [TopicProduceData(topic, partition_data=[PartitionProduceData(index, batch)])]
    )

    def is_written(client: RawClient) -> bool:
        answer = client.call(request, _ADDS_NOTHING)
        return bool(answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE)

    with _unverified(bootstrap):  # the switch takes its time to arrive
        eventually(lambda: any(map(is_written, each(bootstrap))), "the record is in")


@contextmanager
def _unverified(bootstrap: str) -> Iterator[None]:
    """Turns off the verification of transactions: leaders do not check that records are part of one."""

    def configure(operation: int, value: str | None) -> None:
        change = AlterableConfig("transaction.partition.verification.enable", operation, value)
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(_BROKERS, "", [change])])
        with RawClient(bootstrap) as client:
            (answer,) = client.call(request, 1).responses
        assert answer.error_code == ErrorCode.NONE, answer

    configure(_SET, "false")
    try:
        yield
    finally:
        configure(_DELETE, None)
