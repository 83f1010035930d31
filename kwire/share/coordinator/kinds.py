"""The five requests of the share coordinator. They differ in their fields, but have one shape:

    request   group id, topics:  topic id, partitions: the partition, and its parameters
    response  results: topic id, partitions: the partition, an error, and its result

So they are forwarded, split and combined by the same code. The messages are imported when the first one is needed: most
brokers have no share groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

from kwire.share.coordinator.state import SharePartitionKey

PartitionRequest: TypeAlias = Any
"""A PartitionData of a request."""
Result: TypeAlias = Any
"""A PartitionResult of a response."""
Results: TypeAlias = Mapping[Uuid, Mapping[int, Result]]
"""The results by topic id and partition."""


class _Classes(NamedTuple):
    """The parts of a request and of its response, from the outside in."""

    request: Callable[[str, list[Any]], Any]
    data: Callable[[Uuid, list[PartitionRequest]], Any]
    response: Callable[[list[Any]], Any]
    result: Callable[[Uuid, list[Result]], Any]
    partition_result: Callable[[int, int, str | None], Result]


@attrs.define(eq=False, slots=False)
class Kind:
    """One of the requests."""

    name: str
    """The name of the method of `ShareStateShard`."""
    module: str
    """The name of the module in kwire_protocol.messages."""
    message: str
    """The name of the API, with which the names of request and response begin."""
    part: str
    """The prefix of the names of their parts."""

    @cached_property
    def _classes(self) -> _Classes:
        messages = import_module(f"kwire_protocol.messages.{self.module}")
        names = f"{self.message}Request", f"{self.part}Data", f"{self.message}Response", f"{self.part}Result"
        return _Classes(*(getattr(messages, name) for name in (*names, "PartitionResult")))

    def request(self, group_id: str, requested: Mapping[Uuid, list[PartitionRequest]]) -> Any:
        classes = self._classes
        return classes.request(group_id, [classes.data(topic_id, each) for topic_id, each in requested.items()])

    def response(self, results: Results) -> Any:
        classes = self._classes
        return classes.response([classes.result(topic_id, list(each.values())) for topic_id, each in results.items()])

    def refused(self, partition: int, error: KafkaError) -> Result:
        message = f"unable to {self.name} the share group's state: {error.message or error.code.name}"
        return self._classes.partition_result(partition, error.code, message)

    def all_refused(self, request: Any, error: KafkaError) -> Any:
        """Returns the response that refuses the whole request."""
        return self.response(
            {
                topic.topic_id: {
                    requested.partition: self.refused(requested.partition, error) for requested in topic.partitions
                }
                for topic in request.topics
            }
        )


INITIALIZE: Final = Kind("initialize", "initialize_share_group_state", "InitializeShareGroupState", "InitializeState")
READ: Final = Kind("read", "read_share_group_state", "ReadShareGroupState", "ReadState")
WRITE: Final = Kind("write", "write_share_group_state", "WriteShareGroupState", "WriteState")
DELETE: Final = Kind("delete", "delete_share_group_state", "DeleteShareGroupState", "DeleteState")
SUMMARIZE: Final = Kind("summarize", "read_share_group_state_summary", "ReadShareGroupStateSummary", "ReadStateSummary")


def result_of(response: Any, key: SharePartitionKey) -> Result | None:
    """Returns a response's result for a share-partition; None if it has none."""
    found: Iterable[Result] = (
        result
        for topic in response.results
        if topic.topic_id == key.topic_id
        for result in topic.partitions
        if result.partition == key.partition
    )
    return next(iter(found), None)


def error_of(result: Result) -> KafkaError | None:
    """Returns the error of a result; UNKNOWN_SERVER_ERROR for an unknown code."""
    if result.error_code == ErrorCode.NONE:
        return None
    try:
        return KafkaError(ErrorCode(result.error_code), result.error_message)
    except ValueError:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"error {result.error_code}: {result.error_message}")
