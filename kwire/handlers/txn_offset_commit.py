"""TxnOffsetCommit: v0-6.

* v2: committed_leader_epoch (KIP-320)
* v3: generation_id, member_id and group_instance_id (KIP-447); flexible
* v4: TRANSACTION_ABORTABLE may be returned (KIP-890)
* v5: adds the group's partition to the transaction; earlier versions need AddOffsetsToTxn (KIP-890)
* v6: topics by id; GROUP_ID_NOT_FOUND for a generation of an unknown group

The offsets are pending until the transaction's marker is in the group's partition.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from kwire.coordinators.effects import response_error
from kwire.groups.offsets.committing import txn_commit_error
from kwire.handlers._shared.committed_topics import committed_name, merged, take_missing
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.transactions.service import TransactionService

FIRST_VERSION_THAT_WAITS_FOR_LOADING = 2
FIRST_VERSION_WITH_ABORTABLE = 4
FIRST_VERSION_THAT_ADDS = 5
FIRST_VERSION_WITH_TOPIC_IDS = 6


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    transactions: TransactionService,
    request: TxnOffsetCommitRequest,
    context: Context,
) -> TxnOffsetCommitResponse:
    try:
        authorization.check(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        authorization.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
    except KafkaError as error:
        return txn_commit_error(request, error.code)
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    name_of = partial(committed_name, metadata.image, by_id=by_id)
    request.topics, unreadable = authorization.divided(context, Operation.READ, request.topics, name_of)
    denied = TxnOffsetCommitRequest(topics=unreadable)
    refused = txn_commit_error(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED).topics
    refused += [
        TxnOffsetCommitResponseTopic(
            it.name, it.topic_id, [TxnOffsetCommitResponsePartition(index, it.error) for index in it.partitions]
        )
        for it in take_missing(metadata.image, request.topics, by_id=by_id)
    ]
    request.topics = [topic for topic in request.topics if topic.partitions]
    if not request.topics:
        return TxnOffsetCommitResponse(topics=refused)
    try:
        await _enlist(groups, transactions, request, context.api_version)
        response = await groups.commit_transactional(request, api_version=context.api_version)
    except KafkaError as error:
        response = txn_commit_error(request, _known(error.code, context.api_version))
    if refused:
        response.topics = merged(refused, response.topics)
    return response


async def _enlist(
    groups: GroupService, transactions: TransactionService, request: TxnOffsetCommitRequest, version: int
) -> None:
    """Makes sure that the group's partition is part of the transaction, so that the offsets can be committed at once.

    Raises KafkaError. Offsets after the transaction's marker would stay pending for ever, so if a marker arrives while
    this waits, the request to the transaction's coordinator is repeated.
    """
    producer = (request.producer_id, request.producer_epoch)
    topic, index = groups.find_partition(request.group_id)
    adds = version >= FIRST_VERSION_THAT_ADDS
    for _ in range(2):
        decided = transactions.enlist(request.transactional_id, *producer, topic, index, adds=adds)
        if decided is None:
            return
        is_unchanged = groups.runtime.topic.begin_verification(index, producer, adds=adds)
        error = await decided
        if error is not None:
            raise error
        if is_unchanged():
            return
    raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "transactions ended during a request to their coordinator")


def _known(error: ErrorCode, version: int) -> ErrorCode:
    """Returns the error that clients of this version support, as in Kafka's AddPartitionsToTxnManager and KafkaApis."""
    match error:
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.TRANSACTION_ABORTABLE if version < FIRST_VERSION_WITH_ABORTABLE:
            return ErrorCode.INVALID_TXN_STATE
        case ErrorCode.NETWORK_EXCEPTION:
            # The transaction's coordinator did not respond. With this error clients retry without FindCoordinator.
            return _known(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, version)
        case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version < FIRST_VERSION_THAT_WAITS_FOR_LOADING:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case _:
            return response_error(error)
