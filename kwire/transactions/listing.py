"""Reports on transactional ids: the filter of ListTransactions, and the answer of DescribeTransactions."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.describe_transactions import TopicData
from kwire_protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from kwire_protocol.messages.list_transactions import ListTransactionsRequest

from kwire.names.patterns import InvalidPattern, Pattern
from kwire.transactions.transaction import Transaction, TransactionState

STATE_NAMES = frozenset(state.value for state in TransactionState)


@attrs.frozen
class TransactionFilter:
    """Selects ids that satisfy every part; an empty part matches all ids."""

    states: frozenset[str] = frozenset()
    """Names of states; unknown ones match no id."""
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1
    """Transactions older than this, in milliseconds, match. An id that never had one matches too, as in Kafka."""
    pattern: Pattern | None = None

    @classmethod
    def of(cls, request: ListTransactionsRequest) -> TransactionFilter:
        """Returns the filter of a request. Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""
        return cls(
            frozenset(request.state_filters),
            frozenset(request.producer_id_filters),
            request.duration_filter,
            _pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None,
        )

    @property
    def unknown_states(self) -> list[str]:
        return sorted(self.states - STATE_NAMES)

    def accepts(self, transaction: Transaction, *, now_ms: int) -> bool:
        return (
            (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (not self.states or transaction.state.value in self.states)
            and (self.duration_ms < 0 or now_ms - transaction.start_ms > self.duration_ms)
            and (self.pattern is None or self.pattern.matches(transaction.transactional_id))
        )


def _pattern(text: str) -> Pattern:
    try:
        return Pattern(text)
    except InvalidPattern as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{quoted(text)} is no pattern for transactional ids: {error}"
        ) from error


def described(transactional_id: str, transaction: Transaction | None) -> DescribedTransaction:
    """Describes an id. While a transaction is prepared, its partitions are those that still lack their marker."""
    if not transactional_id:
        return DescribedTransaction(error_code=ErrorCode.INVALID_REQUEST)
    if transaction is None:
        return DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    by_topic = groupby(sorted(transaction.partitions), key=itemgetter(0))
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic, [index for _, index in partitions]) for topic, partitions in by_topic],
    )
