"""The table of docs/authorization.md as values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import APIS as MESSAGES
from kwire_protocol.messages import (
    add_partitions_to_txn,
    consumer_group_describe,
    describe_share_group_offsets,
    init_producer_id,
    metadata,
    produce,
    share_group_describe,
    streams_group_describe,
)
from kwire_protocol.records import Record, build_batch

from devtools.places import REPOSITORY
from kwire.groups.service import GroupService
from kwire.handlers.apis import APIS
from kwire.node.broker import Broker
from testkit.basics.error_codes import error_codes
from testkit.security.refusals import REFUSALS
from testkit.security.requests import GROUP, ID, REQUESTS, TOPIC, call, topic_id

Permission = tuple[str, str]
"""The names of an operation and a type of resources."""


PAGE = REPOSITORY / "docs" / "authorization.md"


@attrs.frozen
class Row:
    api: str
    permission: Permission
    when: str
    denied: str

    @property
    def code(self) -> str | None:
        """The error with which the client is refused; None if it gets another kind of answer."""
        found = re.match(r"[A-Z_]+_FAILED", self.denied)
        return None if found is None else found[0]


def rows() -> Iterator[Row]:
    table = PAGE.read_text(encoding="utf-8").partition("\n## Checked rights\n")[2]
    api = ""
    for line in re.findall(r"^\|(.+)\|$", table, re.MULTILINE)[2:]:
        named, operation, resource_type, when, denied = (cell.strip() for cell in line.split("|"))
        api = named or api
        yield Row(api, (operation, resource_type), when, denied)


def page_name(api: str) -> str:
    key = next(it.key for it in APIS.values() if it.name == api)
    return MESSAGES[key].request_class.__name__.removesuffix("Request")


def of_a_group(api: str, method: str, answer: Callable[..., Any]) -> Callable[[Broker], Any]:
    """Sends the API's request to a broker that has the group, as far as that method of its service needs it."""

    def make(broker: Broker) -> Any:
        broker.groups = Pretending(broker.groups, method, answer)  # type: ignore[assignment]
        return REQUESTS[api][0](broker)

    return make


@attrs.define
class Pretending:
    """The service, but for one of its methods."""

    service: GroupService
    method: str
    answer: Callable[..., Any]

    def __getattr__(self, name: str) -> Any:
        return self.answer if name == self.method else getattr(self.service, name)


async def _no_offsets(_: object) -> list[Any]:
    return []


def _consumer_group(_: str) -> consumer_group_describe.DescribedGroup:
    has = consumer_group_describe.Assignment([consumer_group_describe.TopicPartitions(topic_name=TOPIC)])
    member = consumer_group_describe.Member("member", assignment=has, target_assignment=has)
    return consumer_group_describe.DescribedGroup(0, None, GROUP, members=[member])


def _share_group(_: str) -> share_group_describe.DescribedGroup:
    has = share_group_describe.Assignment([share_group_describe.TopicPartitions(topic_name=TOPIC)])
    return share_group_describe.DescribedGroup(
        0, None, GROUP, members=[share_group_describe.Member("member", assignment=has)]
    )


def _streams_group(_: str, **_how: bool) -> streams_group_describe.DescribedGroup:
    part = streams_group_describe.Subtopology("0", source_topics=[TOPIC])
    topology = streams_group_describe.Topology(1, [part])
    return streams_group_describe.DescribedGroup(0, None, GROUP, topology=topology)


def _transactional(broker: Broker) -> produce.ProduceRequest:
    batch = memoryview(
        bytearray(build_batch([Record()], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0))
    )
    data = produce.TopicProduceData(TOPIC, topic_id(broker), [produce.PartitionProduceData(0, batch)])
    return produce.ProduceRequest(ID, 1, 1000, [data])


def _in_a_transaction(broker: Broker) -> Any:
    """The transactional id has a transaction with the topic."""
    identity = call(broker, "init_producer_id", init_producer_id.InitProducerIdRequest(ID, 60_000))
    call(broker, "add_partitions_to_txn", _adding(identity.producer_id, identity.producer_epoch), version=3)
    return REQUESTS["describe_transactions"][0](broker)


def _adding(producer_id: int = 1, epoch: int = 0) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(TOPIC, [0])],
    )


MORE: dict[str, list[tuple[Callable[[Broker], Any], int | None]]] = {
    "produce": [(_transactional, None)],
    "init_producer_id": [(lambda _: init_producer_id.InitProducerIdRequest(ID, 60_000, enable2_pc=True), 6)],
    "add_partitions_to_txn": [(lambda _: _adding(), 3)],
    "describe_transactions": [(_in_a_transaction, None)],
    "describe_share_group_offsets": [
        (
            lambda _: describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
                [
                    describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
                        GROUP, [describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(TOPIC, [0])]
                    )
                ]
            ),
            None,
        )
    ],
    **{
        api: [(of_a_group(api, method, answer), None)]
        for api, method, answer in (
            ("consumer_group_describe", "describe_consumer", _consumer_group),
            ("share_group_describe", "describe_share", _share_group),
            ("streams_group_describe", "describe_streams", _streams_group),
            ("alter_share_group_offsets", "alter_share_offsets", _no_offsets),
            ("delete_share_group_offsets", "delete_share_offsets", _no_offsets),
        )
    },
    "metadata": [(lambda _: metadata.MetadataRequest([], include_cluster_authorized_operations=True), 10)],
}
"""Requests, and their versions, for what those in REQUESTS do not reach."""


def refusals(answer: Any) -> set[str]:
    """The errors in an answer that refuse something."""
    return {ErrorCode(code).name for code in error_codes(answer) & REFUSALS}
