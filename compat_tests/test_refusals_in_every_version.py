"""Refusals of a user without any right in every version of every API; the connection stays open.

An older version may have no field for the error that a newer one has: then it is where that version has room for it.
`usual` makes the requests from the message definitions. In kwire's own tests (`kwire/tests/answers`) there are more of
them, and more kinds of refusals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import describe_quorum, elect_leaders
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

from kwire.handlers.apis import APIS, Api
from testkit.basics.error_codes import error_codes
from testkit.scenes.answers.requests import TOPIC, Named, usual
from testkit.scenes.answers.walk import NOT_REFUSED, NOTHING_SAYS_SO
from testkit.security.denials import Scene, denying_broker

E = ErrorCode


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """Its user 0 may do nothing."""
    with denying_broker(1) as running:
        created = running.call(CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)], 60_000))
        assert {it.error_code for it in created.topics} == {E.NONE}
        yield running


@pytest.fixture(scope="module")
def named(scene: Scene) -> Named:
    [topic] = scene.call(MetadataRequest([MetadataRequestTopic(name=TOPIC)], False)).topics
    return Named(topic.topic_id)


def served(scene: Scene, api: Api) -> list[int]:
    """The versions that this broker serves as well."""
    return [it for it in api.versions if it <= scene.versions.get(api.key, -1)]


@pytest.mark.parametrize("api", [it for it in APIS.values() if it.name not in NOT_REFUSED], ids=lambda it: it.name)
def test_a_client_that_may_do_nothing_gets_an_error_in_every_version(scene: Scene, named: Named, api: Api) -> None:
    silent = []
    with scene.connection_of(0) as client:
        for version in served(scene, api):
            codes = error_codes(client.call(usual(api, version, named), version)) - {E.NONE}
            if not codes:
                silent.append(version)
    assert silent == [it for it in served(scene, api) if it in NOTHING_SAYS_SO.get(api.name, ())]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_election_that_is_refused_has_the_error_at_each_partition(scene: Scene, version: int) -> None:
    topics = [elect_leaders.TopicPartitions(TOPIC, [0, 7]), elect_leaders.TopicPartitions("other", [1])]
    with scene.connection_of(0) as client:
        refused = client.call(elect_leaders.ElectLeadersRequest(0, topics), version)
        all_of_them = client.call(elect_leaders.ElectLeadersRequest(0, None), version)
    by_topic = [(it.topic, [(p.partition_id, p.error_code) for p in it.partition_result]) for it in _results(refused)]
    code = E.CLUSTER_AUTHORIZATION_FAILED
    assert by_topic == [(TOPIC, [(0, code), (7, code)]), ("other", [(1, code)])]
    assert _results(all_of_them) == []
    expected = E.NONE if version == 0 else code
    assert (refused.error_code, all_of_them.error_code) == (expected, expected)


def _results(answer: Any) -> list[elect_leaders.ReplicaElectionResult]:
    results: list[elect_leaders.ReplicaElectionResult] = answer.replica_election_results
    return results


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_is_described_in_every_version_and_its_nodes_since_version_2(scene: Scene, version: int) -> None:
    partition = describe_quorum.DescribeQuorumRequestPartitionData(0)
    topic = describe_quorum.DescribeQuorumRequestTopicData("__cluster_metadata", [partition])
    answer = scene.call(describe_quorum.DescribeQuorumRequest([topic]), version)
    assert answer.error_code == E.NONE
    [described] = answer.topics[0].partitions
    assert (described.error_code, described.leader_id) == (E.NONE, 1)
    assert [it.replica_id for it in described.current_voters] == [1]
    assert (described.current_voters[0].last_caught_up_timestamp > 0) == (version >= 1)
    assert [it.node_id for it in answer.nodes] == ([1] if version >= 2 else [])
