"""Helpers of ShareFetch and ShareAcknowledge: the member of the request, and its acknowledgements.

The result of a partition's acknowledgements is known when the share coordinator has recorded them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

from kwire.handlers._shared.group_protocols import SHARE, check_protocol
from kwire.replicas.roles import NotLeaderError
from kwire.runtime.futures import Future
from kwire.security.authorizer import Operation, ResourceType
from kwire.share.leader.acknowledgements import AcknowledgementBatch
from kwire.share.leader.sessions import SessionKey, SharedPartition

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.share.leader.service import SharingService

MAX_MEMBER_ID_LENGTH: Final = 36
"""The maximum length of a member id: that of a UUID as text."""


class AcknowledgedBatch(Protocol):
    """An acknowledgement in either request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


Acknowledgements = Sequence[tuple[SharedPartition, Sequence[AcknowledgedBatch]]]


def authorized_member(
    metadata: MetadataService, authorization: Authorization, context: Context, request: Any
) -> SessionKey:
    """Returns the group and the member.

    Raises KafkaError: UNSUPPORTED_VERSION, INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED.
    """
    check_protocol(metadata, SHARE)
    group_id, member_id = request.group_id, request.member_id
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The request has no group id.")
    authorization.check(context, Operation.READ, ResourceType.GROUP, group_id)
    if not member_id or len(member_id) > MAX_MEMBER_ID_LENGTH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The request has no valid member id.")
    return SessionKey(group_id, member_id)


class Acknowledging:
    """The acknowledgements of one request: started at once, and awaited later."""

    def __init__(
        self,
        authorization: Authorization,
        sharing: SharingService,
        context: Context,
        member: SessionKey,
        acknowledgements: Acknowledgements,
        *,
        may_renew: bool,
    ) -> None:
        find = authorization.finder(context, Operation.READ)
        self._counts = sharing.counts
        self._counts.acknowledges += bool(acknowledgements)
        self._outcomes: dict[SharedPartition, Future[ErrorCode] | KafkaError] = {}
        for shared, batches in acknowledgements:
            try:
                find(*shared).leader()
            except KafkaError as error:
                self._outcomes[shared] = error
                continue
            self._outcomes[shared] = sharing.acknowledge(
                *member,
                shared,
                [AcknowledgementBatch(it.first_offset, it.last_offset, it.acknowledge_types) for it in batches],
                may_renew=may_renew,
            )

    async def outcomes(self) -> Mapping[SharedPartition, KafkaError | None]:
        """Waits, and returns the error of each partition, or None if it has none."""
        errors: dict[SharedPartition, KafkaError | None] = {}
        for shared, outcome in self._outcomes.items():
            if isinstance(outcome, KafkaError):
                errors[shared] = outcome
            else:
                code = await outcome
                errors[shared] = None if code is ErrorCode.NONE else KafkaError(code)
        self._counts.failed_acknowledges += any(error is not None for error in errors.values())
        return errors


async def close_session(sharing: SharingService, member: SessionKey) -> None:
    """Closes a member's session after its last request. Returns when its acquired records are available again."""
    try:
        session = sharing.sessions.close(*member)
    except KafkaError:
        return  # its connection was lost meanwhile, or another one has taken its place
    for outcome in sharing.release(session):
        await outcome


def by_topic(partitions: Sequence[tuple[SharedPartition, Any]], topic: Any) -> list[Any]:
    """Groups the partitions' data by topic: returns `topic(topic_id, partitions)` for each topic, in order."""
    topics: dict[Uuid, list[Any]] = {}
    for shared, data in partitions:
        topics.setdefault(shared.topic_id, []).append(data)
    return [topic(topic_id, found) for topic_id, found in topics.items()]


def set_current_leader(data: Any, error: KafkaError) -> bool:
    """Sets the current leader in a partition's data, if the error has it (KIP-951). Returns True if it does."""
    if not isinstance(error, NotLeaderError):
        return False
    data.current_leader.leader_id, data.current_leader.leader_epoch = error.leader_id, error.leader_epoch
    return True
