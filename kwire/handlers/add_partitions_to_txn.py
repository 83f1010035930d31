"""AddPartitionsToTxn: v0-5.

* v2: PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
* v3: flexible
* v4: several transactions in one request, from brokers, which may only verify partitions (KIP-890)
* v5: TRANSACTION_ABORTABLE may be returned for a partition that is not in the transaction; as in Kafka, also before v5

Partitions join a transaction together: if one of them does not exist, the others are OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

from kwire.handlers._shared.transactions import older_error
from kwire.names.topic_names import is_internal
from kwire.runtime.futures import begun
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.transactions.service import TransactionService

FIRST_VERSION_WITH_SEVERAL = 4

Errors = dict[tuple[str, int], ErrorCode]


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    transactions: TransactionService,
    request: AddPartitionsToTxnRequest,
    context: Context,
) -> AddPartitionsToTxnResponse:
    if context.api_version >= FIRST_VERSION_WITH_SEVERAL:
        # Only brokers send these versions, for producers that they have checked.
        if not authorization.allows(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        # All are started before the first is awaited, so that they wait for the replicas together.
        answers = [
            (each, begun(_add(metadata, authorization, transactions, each, context))) for each in request.transactions
        ]
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(each.transactional_id, _results(each.topics, (await answer).unwrap()))
                for each, answer in answers
            ]
        )
    alone = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    if not authorization.allows(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, alone.transactional_id):
        errors = {
            (topic.name, index): ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            for topic in alone.topics
            for index in topic.partitions
        }
    else:
        errors = await _add(metadata, authorization, transactions, alone, context)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(alone.topics, errors))


async def _add(
    metadata: MetadataService,
    authorization: Authorization,
    transactions: TransactionService,
    wanted: AddPartitionsToTxnTransaction,
    context: Context,
) -> Errors:
    errors = _unfit(metadata, authorization, wanted.topics, context)
    if any(error is not ErrorCode.NONE for error in errors.values()):
        return {key: error or ErrorCode.OPERATION_NOT_ATTEMPTED for key, error in errors.items()}
    transaction = (wanted.transactional_id, wanted.producer_id, wanted.producer_epoch)
    try:
        if wanted.verify_only:
            errors = transactions.verify_partitions(*transaction, list(errors))
        else:
            version = 2 if context.api_version >= FIRST_VERSION_WITH_SEVERAL else 0
            error = await transactions.add_partitions(*transaction, list(errors), transaction_version=version)
            errors = dict.fromkeys(errors, error)
    except KafkaError as refused:
        errors = dict.fromkeys(errors, refused.code)
    return {key: ErrorCode(older_error(error, context.api_version)) for key, error in errors.items()}


def _unfit(
    metadata: MetadataService, authorization: Authorization, topics: Iterable[AddPartitionsToTxnTopic], context: Context
) -> Errors:
    """Returns each partition once, with its error: NONE, UNKNOWN_TOPIC_OR_PARTITION, or TOPIC_AUTHORIZATION_FAILED for
    a client that may not write to the topic. No client may write to an internal topic.
    """
    errors: Errors = {}
    for topic in topics:
        image = metadata.topic(topic.name)
        count = 0 if image is None else len(image.partitions)
        is_closed = context.api_version < FIRST_VERSION_WITH_SEVERAL and (
            is_internal(topic.name)
            or not authorization.allows(context, Operation.WRITE, ResourceType.TOPIC, topic.name)
        )
        for index in topic.partitions:
            if is_closed:
                errors[topic.name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            else:
                there = 0 <= index < count
                errors[topic.name, index] = ErrorCode.NONE if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return errors


def _results(topics: Iterable[AddPartitionsToTxnTopic], errors: Errors) -> list[AddPartitionsToTxnTopicResult]:
    """Returns the error of each partition, repeated as often as the request has the partition."""
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [AddPartitionsToTxnPartitionResult(index, errors[topic.name, index]) for index in topic.partitions],
        )
        for topic in topics
    ]
