"""Creates topics, adds partitions, and reads and sets topic configurations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from kwire.client.cluster import Cluster
from kwire.client.errors import ClientError, ConnectionFailed, Refused, TopicExists, UnknownTopic, raise_worst, refused
from kwire.client.offsets import LATEST, list_offsets

_TOPIC = 2
_FIRST_WITH_DEFAULTS = 4
_FIRST_WITH_SOURCES = 1
_SOURCE_TOPIC: Final = 1  # the source of a value that was set for this topic
_SET, _DELETE = 0, 1


@attrs.frozen
class NewTopic:
    """A topic to create. -1 means the brokers' default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = attrs.field(factory=dict)


def create_topics(cluster: Cluster, topics: Sequence[NewTopic]) -> None:
    """Creates topics, and returns when every partition's leader serves it.

    Raises TopicExists and other ClientErrors; some of the topics may then have been created.
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
            # The topics may have been created. A retry would fail because they exist.
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


def create_partitions(cluster: Cluster, topic: str, total: int) -> None:
    """Adds partitions up to a total of `total`, and returns when every partition's leader serves it.

    A topic that already has this many is left unchanged. Raises UnknownTopic and other ClientErrors.
    """

    def grow() -> None:
        cluster.forget_topic(topic)
        if len(cluster.topic(topic).leaders) >= total:
            return
        request = CreatePartitionsRequest(
            [CreatePartitionsTopic(topic, total, assignments=None)], int(cluster.timeout_s * 1000)
        )
        for it in cluster.call(request, node_id=cluster.controller_id()).results:
            if it.error_code:
                what = f"topic {quoted(topic)} cannot be given {total} partitions"
                raise refused(what, it.error_code, it.error_message)

    def attempt() -> None:
        cluster.forget_topic(topic)
        found = len(cluster.topic(topic).leaders)
        if found < total:  # Apache Kafka responds before its brokers have the change
            what = f"topic {quoted(topic)} has {found} partitions, and was given {total}"
            raise refused(what, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    cluster.until_done(grow)
    cluster.until_done(attempt)
    _wait_until_served(cluster, topic)


def _wait_until_served(cluster: Cluster, topic: str) -> None:
    """Waits for the leaders: Apache Kafka responds before its brokers have the topic, and with leaders that do not lead
    yet."""

    def attempt() -> None:
        try:
            list_offsets(cluster, topic, LATEST)
        except UnknownTopic as error:
            raise Refused(error.message, error.code) from None

    cluster.until_done(attempt)


def describe_topic_configs(cluster: Cluster, topics: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """Returns all configurations of these topics by name, including defaults; the value is None for secrets.

    Raises UnknownTopic and other ClientErrors.
    """
    return {name: {it.name: it.value for it in configs} for name, configs in _described(cluster, topics).items()}


def topic_overrides(cluster: Cluster, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns the configurations that are set for these topics. Raises the errors of `describe_topic_configs`."""
    return {
        name: {it.name: it.value for it in configs if it.config_source == _SOURCE_TOPIC and it.value is not None}
        for name, configs in _described(cluster, topics).items()
    }


def alter_topic_configs(
    cluster: Cluster, topic: str, values: Mapping[str, str], *, removed: Collection[str] = ()
) -> None:
    """Sets some of a topic's configurations and resets others to their defaults. The rest is unchanged.

    Raises UnknownTopic and other ClientErrors; then nothing has changed.
    """
    if not values and not removed:
        return
    configs = [AlterableConfig(name, _SET, value) for name, value in values.items()]
    configs += [AlterableConfig(name, _DELETE, None) for name in removed]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(_TOPIC, topic, configs)])

    def alter() -> None:
        for it in cluster.call(request, node_id=cluster.controller_id()).responses:
            if it.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopic(f"there is no topic {quoted(topic)}")
            if it.error_code:
                what = f"the configurations of topic {quoted(topic)} cannot be changed"
                raise refused(what, it.error_code, it.error_message)

    cluster.until_done(alter)


def _described(cluster: Cluster, topics: Sequence[str]) -> dict[str, list[DescribeConfigsResourceResult]]:
    request = DescribeConfigsRequest([DescribeConfigsResource(_TOPIC, name, None) for name in topics])

    def describe() -> dict[str, list[DescribeConfigsResourceResult]]:
        found = {}
        for it in cluster.call(request, at_least=_FIRST_WITH_SOURCES).results:
            if it.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopic(f"there is no topic {quoted(it.resource_name)}")
            if it.error_code:
                what = f"the configurations of topic {quoted(it.resource_name)} cannot be looked at"
                raise refused(what, it.error_code, it.error_message)
            found[it.resource_name] = it.configs
        return found

    return cluster.until_done(describe)
