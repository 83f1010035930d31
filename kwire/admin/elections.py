"""Elections of leaders on request (ElectLeaders; KIP-183 for preferred leaders, KIP-460 for unclean elections)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)

from kwire.admin.batches import batches
from kwire.admin.partitions import PartitionState, by_topic, look_up_partitions
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import ClientError, error_name, refused
from kwire.client.waiting import until_done

SETTLING_S: Final = 5.0
"""The maximum time to wait until brokers have the new leaders: Apache Kafka's read them from the metadata log."""

_PREFERRED, _UNCLEAN = 0, 1
_FIRST_WITH_UNCLEAN = 1


@attrs.frozen
class Elected:
    """The result of an election for one partition."""

    at: TopicPartition
    leader_before: int | None
    leader_id: int | None
    """None when it still has no leader."""
    problem: str | None
    """The reason why no leader was elected: the name of Kafka's error, and the broker's own message, if any."""


def electable(cluster: Cluster, topic: str | None, *, unclean: bool) -> list[PartitionState]:
    """The partitions that an election may change, of a topic or of all. Raises ClientError.

    For an unclean election those without a leader; else those that their preferred leader does not lead.
    """
    partitions = look_up_partitions(cluster, None if topic is None else [topic]).values()
    if unclean:
        return [it for it in partitions if it.is_offline]
    return [it for it in partitions if it.replicas and it.leader_id != it.replicas[0]]


def elect(cluster: Cluster, partitions: Sequence[PartitionState], *, unclean: bool) -> list[Elected]:
    """Elects leaders, and returns the result for each partition. Raises ClientError.

    An unclean election takes any replica in service, and loses the records that it does not have.
    """
    problems: dict[TopicPartition, str] = {}
    for some in batches(it.at for it in partitions):
        problems |= cluster.until_done(lambda: _elect(cluster, some, unclean=unclean))  # noqa: B023
    waiting_for = [it for it in partitions if it.at not in problems]
    leaders = _leaders(cluster, waiting_for)
    return [Elected(it.at, it.leader_id, leaders.get(it.at, it.leader_id), problems.get(it.at)) for it in partitions]


def _elect(cluster: Cluster, some: Collection[TopicPartition], *, unclean: bool) -> dict[TopicPartition, str]:
    """The partitions whose election failed, with the reason."""
    request = ElectLeadersRequest(
        _UNCLEAN if unclean else _PREFERRED,
        [TopicPartitions(topic, indexes) for topic, indexes in by_topic(some).items()],
        int(cluster.timeout_s * 1000),
    )
    at_least = _FIRST_WITH_UNCLEAN if unclean else 0
    answer: ElectLeadersResponse = cluster.call(request, node_id=cluster.controller_id(), at_least=at_least)
    if answer.error_code:
        raise refused("no leader is elected", answer.error_code)
    return {
        TopicPartition(topic.topic, it.partition_id): error_name(it.error_code)
        + (f" ({it.error_message})" if it.error_message else "")
        for topic in answer.replica_election_results
        for it in topic.partition_result
        # ELECTION_NOT_NEEDED: the leader was elected meanwhile, or by a request whose response was lost.
        if it.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    }


def _leaders(cluster: Cluster, partitions: Collection[PartitionState]) -> dict[TopicPartition, int | None]:
    """Waits until all leaders have changed, at most SETTLING_S, and returns the leaders of all these topics."""
    if not partitions:
        return {}
    found: dict[TopicPartition, int | None] = {}

    def attempt() -> None:
        nonlocal found
        now = look_up_partitions(cluster, {it.at.topic for it in partitions})
        found = {at: it.leader_id for at, it in now.items()}
        if any(found.get(it.at) == it.leader_id for it in partitions):
            raise _Unsettled("not all new leaders are known yet")

    with suppress(_Unsettled):
        until_done(attempt, clock=cluster.clock, timeout_s=SETTLING_S)
    return found


class _Unsettled(ClientError):
    """A broker may not have a new leader in its metadata yet."""

    may_pass = True
