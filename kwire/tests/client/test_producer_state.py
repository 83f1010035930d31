"""The state of a producer: sequences without holes, and no way around an abort that is due."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from kwire.client.cluster import TopicPartition
from kwire.client.producer_state import SEQUENCES, Phase, ProducerState, WrongPhase

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def idempotent() -> ProducerState:
    state = ProducerState(None)
    state.initialized(7, 0)
    return state


def transactional() -> ProducerState:
    state = ProducerState("id")
    state.initialized(7, 3)
    state.begin()
    return state


@given(st.lists(st.tuples(st.sampled_from((A, B)), st.integers(1, SEQUENCES - 1)), max_size=20))
def test_each_batch_follows_the_one_before_in_its_partition(batches: list[tuple[TopicPartition, int]]) -> None:
    state = idempotent()
    total = {A: 0, B: 0}
    for at, count in batches:
        assert state.take_sequence(at, count) == total[at] % (1 << 31)
        total[at] += count


def test_zero_follows_the_last_sequence() -> None:
    state = idempotent()
    state.take_sequence(A, SEQUENCES - 2)
    assert [state.take_sequence(A, 1) for _ in range(3)] == [SEQUENCES - 2, SEQUENCES - 1, 0]


def test_sequences_restart_with_an_epoch_or_an_id_only() -> None:
    state = transactional()
    state.take_sequence(A, 5)
    state.committing()
    state.ended()
    state.begin()
    assert state.take_sequence(A, 1) == 5
    for producer in ((7, 4), (8, 0)):
        state.committing()
        state.ended(*producer)
        state.begin()
        assert state.take_sequence(A, 9) == 0
        assert (state.producer_id, state.producer_epoch) == producer


def test_what_the_coordinator_has_registered_ends_with_the_transaction() -> None:
    state = transactional()
    state.take_sequence(A, 1)
    state.partitions.add(A)
    state.groups.add("g")
    known = state.is_known
    state.aborting()
    state.ended()
    assert (known, state.is_known) == (True, False)
    assert (state.partitions, state.groups, state.phase) == (set(), set(), Phase.READY)


def test_a_producer_without_transactions_continues_under_another_id() -> None:
    state = idempotent()
    state.take_sequence(A, 5)
    state.failed()
    with pytest.raises(WrongPhase, match="the producer cannot write: it has no producer id yet"):
        state.take_sequence(A, 1)
    state.initialized(8, 0)
    assert state.take_sequence(A, 1) == 0
    with pytest.raises(WrongPhase, match="without a transactional id"):
        state.begin()


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        (Phase.UNINITIALIZED, "it has no producer id yet"),
        (Phase.READY, "it is in no transaction"),
        (Phase.COMMITTING, "its transaction may be committed already; commit it again"),
        (Phase.MUST_ABORT, "its transaction failed, and can only be aborted"),
        (Phase.FENCED, "another producer has its transactional id, or its transaction took too long"),
    ],
)
def test_a_write_in_the_wrong_phase_is_rejected_with_the_reason(phase: Phase, reason: str) -> None:
    state = ProducerState("id", phase=phase)
    with pytest.raises(WrongPhase, match=f"producer 'id' cannot write: {reason}"):
        state.take_sequence(A, 1)


class Transactions(RuleBasedStateMachine):
    """Whatever is called in whatever order, what was sent in a transaction that failed is never committed."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ProducerState("id")
        self.state.initialized(7, 0)
        self.has_failed = False

    def attempt(self, goes: bool, call: str) -> None:
        if goes:
            getattr(self.state, call)()
        else:
            with pytest.raises(WrongPhase):
                getattr(self.state, call)()

    @rule()
    def begins(self) -> None:
        self.attempt(self.state.phase is Phase.READY, "begin")

    @rule()
    def writes(self) -> None:
        self.attempt(self.state.phase is Phase.IN_TRANSACTION, "check_may_write")

    @precondition(lambda self: self.state.phase is Phase.IN_TRANSACTION)
    @rule()
    def fails(self) -> None:
        self.state.failed()
        self.has_failed = True

    @rule()
    def commits(self) -> None:
        goes = self.state.phase in (Phase.IN_TRANSACTION, Phase.COMMITTING)
        assert not (goes and self.has_failed)
        self.attempt(goes, "committing")

    @rule()
    def aborts(self) -> None:
        self.attempt(self.state.phase in (Phase.IN_TRANSACTION, Phase.MUST_ABORT), "aborting")

    @precondition(lambda self: self.state.phase in (Phase.COMMITTING, Phase.MUST_ABORT))
    @rule()
    def ends(self) -> None:
        self.state.ended()
        self.has_failed = False


TestTransactions = Transactions.TestCase
