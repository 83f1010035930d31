"""The brokers of the cluster under test, for requests to each of them, or to one in particular.

A change of metadata is visible at the broker that answered, and at other brokers a moment later (in Apache Kafka a
moment later even there). Clients use any broker, so a test waits until all of them have the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

from testkit.basics.waiting import eventually
from testkit.raw.client import RawClient

NODE = 1
"""The broker that the tests connect to: the only one, or one of three."""
GROUP, TRANSACTION = 0, 1
"""The kinds of coordinators."""
_METADATA_VERSION, _FIND_COORDINATOR_VERSION = 12, 4


def each(bootstrap: str) -> Iterator[RawClient]:
    """A connection to each broker of the cluster, one after the other. `bootstrap` are addresses of some of them.

    A broker that has just ended may still be known; it is passed over.
    """
    with _any(bootstrap) as client:
        found = _metadata(client, []).brokers
    for broker in found:
        try:
            connected = RawClient(f"{broker.host}:{broker.port}")
        except ConnectionRefusedError:
            continue
        with connected as client:
            yield client


def wait_until_in_service(bootstrap: str, node_id: int) -> None:
    """Returns when this broker, which has started, is in the metadata of every running broker."""

    def lists_broker(client: RawClient) -> bool:
        return any(it.node_id == node_id for it in _metadata(client, []).brokers)

    def all_list_broker() -> bool:
        answers = [lists_broker(client) for client in each(bootstrap)]
        return bool(answers) and all(answers)

    eventually(all_list_broker, f"broker {node_id} is in service")


def topic_names(bootstrap: str) -> set[str]:
    """The names of the topics in a broker's metadata."""
    with _any(bootstrap) as client:
        return {topic.name for topic in _metadata(client, None).topics if topic.name is not None}


def wait_until_led(bootstrap: str, topic: str, partitions: int) -> None:
    """Returns when every broker has the topic in its metadata, with so many partitions, and the leader of each."""
    eventually(
        lambda: all(_led(client, topic) == partitions for client in each(bootstrap)),
        f"{topic} has {partitions} partitions",
    )


def wait_until_gone(bootstrap: str, topic: str) -> None:
    """Returns when no broker has the topic in its metadata."""

    def is_gone(client: RawClient) -> bool:
        (answer,) = _metadata(client, [topic]).topics
        return bool(answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    eventually(lambda: all(map(is_gone, each(bootstrap))), f"{topic} is gone")


def name_coordinated_here(bootstrap: str, kind: int, new_name: Callable[[], str]) -> str:
    """The first of the names that `NODE` coordinates; `kind` is GROUP or TRANSACTION."""
    with RawClient(bootstrap) as client:
        while True:
            name = new_name()
            if eventually(partial(_coordinator, client, kind, name), f"{name} has a coordinator") == NODE:
                return name


def _coordinator(client: RawClient, kind: int, name: str) -> int | None:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
    (found,) = client.call(request, _FIND_COORDINATOR_VERSION).coordinators
    return None if found.error_code else found.node_id


def _any(bootstrap: str) -> RawClient:
    *others, last = bootstrap.split(",")
    for address in others:
        try:
            return RawClient(address)
        except ConnectionRefusedError:
            continue
    return RawClient(last)


def _metadata(client: RawClient, topics: list[str] | None) -> MetadataResponse:
    wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    answer: MetadataResponse = client.call(MetadataRequest(wanted, False), _METADATA_VERSION)
    return answer


def _led(client: RawClient, name: str) -> int:
    (topic,) = _metadata(client, [name]).topics
    return 0 if topic.error_code else sum(partition.leader_id >= 0 for partition in topic.partitions)
