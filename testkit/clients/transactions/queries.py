"""Requests to the broker about transactions, without a client's help.

For some moments after a start, Apache Kafka has no leaders and no coordinators, so their errors do not count as
answers. Each broker of the cluster is queried, until one answers; `bootstrap` has the addresses of some, separated by
commas.
"""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire_protocol.messages.describe_transactions import DescribeTransactionsRequest
from kwire_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kwire_protocol.messages.list_transactions import ListTransactionsRequest
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)

from testkit.basics.waiting import eventually
from testkit.clients.transactions.client import Spot
from testkit.raw.nodes import each

LATEST = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_NOT_YET = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_LIST_VERSION, _FETCH_VERSION, _LIST_TRANSACTIONS_VERSION = 7, 8, 0
_OPEN = ["Ongoing", "PrepareCommit", "PrepareAbort"]


def end_offset(bootstrap: str, spot: Spot, *, committed: bool) -> int:
    """The last stable offset with `committed`, or else the high watermark."""
    level = READ_COMMITTED if committed else READ_UNCOMMITTED
    wanted = ListOffsetsTopic(spot[0], [ListOffsetsPartition(spot[1], timestamp=LATEST)])

    def answer() -> ListOffsetsPartitionResponse | None:
        for client in each(bootstrap):
            (topic,) = client.call(ListOffsetsRequest(-1, level, [wanted]), _LIST_VERSION).topics
            (partition,) = topic.partitions
            if partition.error_code not in _NOT_YET:
                assert isinstance(partition, ListOffsetsPartitionResponse)
                return partition
        return None

    found = eventually(answer, f"{spot} has a leader")
    assert found is not None
    assert found.error_code == ErrorCode.NONE, found
    return int(found.offset)


def is_stable(bootstrap: str, spot: Spot) -> bool:
    """True if no transaction is open in the partition."""
    return end_offset(bootstrap, spot, committed=True) == end_offset(bootstrap, spot, committed=False)


def group_offset(bootstrap: str, group: str, spot: Spot, *, stable: bool = True) -> int | None:
    """Returns the group's committed offset, -1 for none.

    With `stable`, returns None while a transaction that is about to change it has not ended; without it, the previous
    offset.
    """
    topic = OffsetFetchRequestTopics(name=spot[0], partition_indexes=[spot[1]])
    wanted = OffsetFetchRequestGroup(group, topics=[topic])

    def answer() -> OffsetFetchResponseGroup | None:
        for client in each(bootstrap):
            (found,) = client.call(OffsetFetchRequest(groups=[wanted], require_stable=stable), _FETCH_VERSION).groups
            if found.error_code not in _NOT_YET:
                assert isinstance(found, OffsetFetchResponseGroup)
                return found
        return None

    found = eventually(answer, f"{group} has a coordinator")
    assert found is not None
    assert found.error_code == ErrorCode.NONE, found
    (partition,) = found.topics[0].partitions
    if stable and partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        return None
    assert partition.error_code == ErrorCode.NONE, partition
    return int(partition.committed_offset)


def open_producers(bootstrap: str, spot: Spot) -> list[str]:
    """Describes each producer with an open transaction in the partition."""
    found: list[str] = []
    for client in each(bootstrap):
        (topic,) = client.call(DescribeProducersRequest([TopicRequest(spot[0], [spot[1]])]), 0).topics
        (partition,) = topic.partitions
        found += [
            f"producer {it.producer_id} epoch {it.producer_epoch} from offset {it.current_txn_start_offset}, "
            f"last at {it.last_timestamp}"
            for it in partition.active_producers
            if it.current_txn_start_offset >= 0
        ]
    return found


def described_transactions(bootstrap: str, transactional_ids: list[str]) -> list[str]:
    """Describes the transactions, as their coordinators know them."""
    return [
        f"{it.transactional_id}: {it.transaction_state or ErrorCode(it.error_code).name}, producer {it.producer_id} "
        f"epoch {it.producer_epoch}, since {it.transaction_start_time_ms}, in "
        f"{[(topic.topic, topic.partitions) for topic in it.topics]}"
        for client in each(bootstrap)
        for it in client.call(DescribeTransactionsRequest(transactional_ids), 0).transaction_states
    ]


def are_coordinators_loading(bootstrap: str) -> bool:
    """Returns True while a broker loads transactional ids, for which it takes no requests until then."""
    answers = (client.call(ListTransactionsRequest(_OPEN), _LIST_TRANSACTIONS_VERSION) for client in each(bootstrap))
    return any(answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for answer in answers)


def open_transactions(bootstrap: str) -> dict[str, str]:
    """Returns the state of each transaction that has not ended, by transactional id; empty while the coordinator
    starts.
    """
    found: dict[str, str] = {}
    for client in each(bootstrap):
        answer = client.call(ListTransactionsRequest(_OPEN), _LIST_TRANSACTIONS_VERSION)
        found |= {it.transactional_id: it.transaction_state for it in answer.transaction_states}
    return found
