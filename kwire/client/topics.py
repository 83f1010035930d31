"""Topics made, and the configurations that topics have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

from kwire.client.cluster import Cluster
from kwire.client.errors import ClientError, ConnectionFailed, Refused, TopicExists, UnknownTopic, raise_worst, refused
from kwire.client.offsets import LATEST, list_offsets

_TOPIC = 2
_FIRST_WITH_DEFAULTS = 4


@attrs.frozen
class NewTopic:
    """-1 stands for what the brokers are configured to."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = attrs.field(factory=dict)


def create_topics(cluster: Cluster, topics: Sequence[NewTopic]) -> None:
    """Creates topics, and returns when the leader of each of their partitions answers for it.

    Raises TopicExists, and other ClientErrors; the others may have been created then.
    """
    wanted = {
        it.name: CreatableTopic(
            it.name,
            it.partitions,
            it.replication_factor,
            configs=[CreatableTopicConfig(name, value) for name, value in it.configs.items()],
        )
        for it in topics
    }

    def create() -> None:
        request = CreateTopicsRequest([*wanted.values()], timeout_ms=int(cluster.timeout_s * 1000))
        node_id = cluster.controller_id()
        try:
            response = cluster.call(request, node_id=node_id, at_least=_FIRST_WITH_DEFAULTS)
        except ConnectionFailed as error:
            # It may have been done. Asked again, it would be told that the topics exist.
            error.may_pass = False
            raise
        problems: list[ClientError] = []
        for it in response.topics:
            if it.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                problems.append(TopicExists(f"topic {quoted(it.name)} exists"))
            elif it.error_code:
                problems.append(refused(f"topic {quoted(it.name)} cannot be created", it.error_code, it.error_message))
            else:
                del wanted[it.name]
        raise_worst(problems)

    cluster.until_done(create)
    cluster.metadata([it.name for it in topics])  # of all at once
    for it in topics:
        _wait_until_served(cluster, it.name)


def _wait_until_served(cluster: Cluster, topic: str) -> None:
    """Apache Kafka answers before its brokers know of the topic, and names leaders before these do."""

    def look() -> None:
        try:
            list_offsets(cluster, topic, LATEST)
        except UnknownTopic as error:
            raise Refused(error.message, error.code) from None

    cluster.until_done(look)


def describe_topic_configs(cluster: Cluster, topics: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """All configurations of these topics by name, defaults included; None for those that are kept secret.

    Raises UnknownTopic, and other ClientErrors.
    """
    request = DescribeConfigsRequest([DescribeConfigsResource(_TOPIC, name, None) for name in topics])

    def describe() -> dict[str, dict[str, str | None]]:
        found = {}
        for it in cluster.call(request).results:
            if it.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopic(f"there is no topic {quoted(it.resource_name)}")
            if it.error_code:
                what = f"the configurations of topic {quoted(it.resource_name)} cannot be looked at"
                raise refused(what, it.error_code, it.error_message)
            found[it.resource_name] = {config.name: config.value for config in it.configs}
        return found

    return cluster.until_done(describe)
