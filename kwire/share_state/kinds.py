"""The five requests of the share coordinator. They differ in their fields, but have one shape:

    request   group id, topics:  topic id, partitions: the partition, and what is asked of it
    response  results: topic id, partitions: the partition, an error, and what is answered

So they are passed on, divided and put together by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from kwire_protocol.wire import Uuid

from kwire.coordinators.effects import Effect
from kwire.share_state.shard import ShareStateShard
from kwire.share_state.state import SharePartitionKey

Asked: TypeAlias = Any
"""A PartitionData of a request."""
Result: TypeAlias = Any
"""A PartitionResult of a response."""
Results: TypeAlias = Mapping[Uuid, Mapping[int, Result]]
"""By topic id and partition."""


@attrs.frozen(eq=False)
class Kind:
    """One of the requests: the classes of its parts, and the method of the machine."""

    name: str
    decide: Callable[..., list[Effect]]
    """Of the shard, the key, what is asked, the token, and `now`."""
    request_class: Callable[[str, list[Any]], Any]
    topic_class: Callable[[Uuid, list[Asked]], Any]
    response_class: Callable[[list[Any]], Any]
    result_class: Callable[[Uuid, list[Result]], Any]
    partition_result: Callable[[int, int, str | None], Result]

    def request(self, group_id: str, asked: Mapping[Uuid, list[Asked]]) -> Any:
        return self.request_class(group_id, [self.topic_class(topic_id, each) for topic_id, each in asked.items()])

    def response(self, results: Results) -> Any:
        return self.response_class(
            [self.result_class(topic_id, list(each.values())) for topic_id, each in results.items()]
        )

    def refused(self, partition: int, error: KafkaError) -> Result:
        message = f"unable to {self.name} the share group's state: {error.message or error.code.name}"
        return self.partition_result(partition, error.code, message)

    def all_refused(self, request: Any, error: KafkaError) -> Any:
        """The response if nothing of the request is done."""
        return self.response(
            {
                topic.topic_id: {asked.partition: self.refused(asked.partition, error) for asked in topic.partitions}
                for topic in request.topics
            }
        )


INITIALIZE: Final = Kind(
    "initialize",
    ShareStateShard.initialize,
    initialize_share_group_state.InitializeShareGroupStateRequest,
    initialize_share_group_state.InitializeStateData,
    initialize_share_group_state.InitializeShareGroupStateResponse,
    initialize_share_group_state.InitializeStateResult,
    initialize_share_group_state.PartitionResult,
)
READ: Final = Kind(
    "read",
    ShareStateShard.read,
    read_share_group_state.ReadShareGroupStateRequest,
    read_share_group_state.ReadStateData,
    read_share_group_state.ReadShareGroupStateResponse,
    read_share_group_state.ReadStateResult,
    read_share_group_state.PartitionResult,
)
WRITE: Final = Kind(
    "write",
    ShareStateShard.write,
    write_share_group_state.WriteShareGroupStateRequest,
    write_share_group_state.WriteStateData,
    write_share_group_state.WriteShareGroupStateResponse,
    write_share_group_state.WriteStateResult,
    write_share_group_state.PartitionResult,
)
DELETE: Final = Kind(
    "delete",
    ShareStateShard.delete,
    delete_share_group_state.DeleteShareGroupStateRequest,
    delete_share_group_state.DeleteStateData,
    delete_share_group_state.DeleteShareGroupStateResponse,
    delete_share_group_state.DeleteStateResult,
    delete_share_group_state.PartitionResult,
)
SUMMARIZE: Final = Kind(
    "summarize",
    ShareStateShard.summarize,
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
    read_share_group_state_summary.ReadStateSummaryData,
    read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
    read_share_group_state_summary.ReadStateSummaryResult,
    read_share_group_state_summary.PartitionResult,
)


def result_of(response: Any, key: SharePartitionKey) -> Result | None:
    """What a response says of a share-partition; None if nothing."""
    found: Iterable[Result] = (
        result
        for topic in response.results
        if topic.topic_id == key.topic_id
        for result in topic.partitions
        if result.partition == key.partition
    )
    return next(iter(found), None)


def error_of(result: Result) -> KafkaError | None:
    """The error of a result, also if this broker does not know its code."""
    if result.error_code == ErrorCode.NONE:
        return None
    try:
        return KafkaError(ErrorCode(result.error_code), result.error_message)
    except ValueError:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"error {result.error_code}: {result.error_message}")
