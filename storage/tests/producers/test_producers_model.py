"""Producers against the plainest model: every batch ever accepted, in a list."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_storage.producers.snapshots import decode_snapshot, encode_snapshot
from kwire_storage.producers.states import EndTxnMarker, ProducerStates, Verification

from testkit.storage.logs import header_of

ROUND = 2**31

producer_ids = st.integers(1, 3)


@attrs.define
class Accepted:
    producer_id: int
    epoch: int
    first: int
    last: int
    offset: int
    marker: bool = False


@attrs.define
class PendingVerification:
    """A request to the coordinator that is under way: the batch, and the state when it was sent."""

    producer_id: int
    epoch: int
    sequence: int
    adds: bool
    verification: Verification
    is_over: bool = False
    """A batch or a marker of the producer has come since."""


class ProducersMachine(RuleBasedStateMachine):
    @initialize(start=st.sampled_from([0, ROUND - 6]))
    def begin(self, start: int) -> None:
        self.states = ProducerStates()
        self.history: list[Accepted] = []
        self.open: dict[int, int] = {}
        self.offset = 0
        self.start = start
        # A snapshot keeps one batch of each producer: repeats of older ones are no longer recognised.
        self.since_snapshot = 0
        self.pending: list[PendingVerification] = []

    def settle(self, producer_id: int) -> None:
        for request in self.pending:
            request.is_over = request.is_over or request.producer_id == producer_id

    def of(self, producer_id: int) -> list[Accepted]:
        """Returns the producer's batches of its epoch, with the markers that came between."""
        mine = [batch for batch in self.history if batch.producer_id == producer_id]
        return [batch for batch in mine if batch.epoch == mine[-1].epoch]

    def remembered(self, producer_id: int) -> list[Accepted]:
        data = [batch for batch in self.of(producer_id) if not batch.marker]
        old = [batch for batch in data if batch.offset < self.since_snapshot]
        return (old[-1:] + [batch for batch in data if batch.offset >= self.since_snapshot])[-5:]

    def expectation(self, producer_id: int, epoch: int, first: int, last: int, transactional: bool) -> object:
        mine = self.of(producer_id)
        if not mine:
            return None
        current = mine[-1].epoch
        for batch in self.remembered(producer_id):
            if (batch.epoch, batch.first, batch.last) == (epoch, first, last):
                return batch.offset
        data = [batch for batch in mine if not batch.marker]
        if epoch < current:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if first != (0 if epoch > current or not data else (data[-1].last + 1) % ROUND):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if producer_id in self.open and not transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    @rule(
        producer_id=producer_ids,
        bump=st.sampled_from([0, 0, 0, 0, 1, -1]),
        count=st.integers(1, 4),
        how=st.sampled_from(["next", "next", "next", "next", "zero", "gap", "repeat"]),
        age=st.integers(1, 7),
        transactional=st.booleans(),
    )
    def send(self, producer_id: int, bump: int, count: int, how: str, age: int, transactional: bool) -> None:
        mine = self.of(producer_id)
        data = [batch for batch in mine if not batch.marker]
        epoch = max((mine[-1].epoch if mine else 0) + bump, 0)
        following = (data[-1].last + 1) % ROUND if data else (0 if mine else self.start)
        first = {"next": following, "zero": 0, "gap": (following + 2) % ROUND, "repeat": following}[how]
        if how == "repeat" and len(data) >= age:
            first, count = data[-age].first, (data[-age].last - data[-age].first) % ROUND + 1
        header = header_of(
            producer_id=producer_id, epoch=epoch, sequence=first, count=count, transactional=transactional
        )
        last = (first + count - 1) % ROUND
        try:
            answer: object = self.states.check(header, now_ms=0)
        except KafkaError as error:
            answer = error.code
        assert answer == self.expectation(producer_id, epoch, first, last, transactional)
        if answer is None:
            self.states.apply(header, self.offset)
            self.history.append(Accepted(producer_id, epoch, first, last, self.offset))
            if transactional:
                if producer_id not in self.open:
                    self.settle(producer_id)
                self.open.setdefault(producer_id, self.offset)
            self.offset += count

    @rule(
        producer_id=producer_ids,
        bump=st.sampled_from([0, 0, 0, 1, -1]),
        sequence=st.integers(0, 3),
        adds=st.booleans(),
    )
    def request_verification(self, producer_id: int, bump: int, sequence: int, adds: bool) -> None:
        """The first batch of a transaction waits for its coordinator's answer."""
        mine = self.of(producer_id)
        current = mine[-1].epoch if mine else 0
        epoch = max(current + bump, 0)
        header = header_of(producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True)
        assert self.states.holds_transaction(header) == (producer_id in self.open and epoch == current)
        if epoch < current:
            with pytest.raises(KafkaError) as refused:
                self.states.begin_verification(header, adds=adds, now_ms=0)
            assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
            return
        verification = self.states.begin_verification(header, adds=adds, now_ms=0)
        self.pending.append(PendingVerification(producer_id, epoch, sequence, adds, verification))

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """The coordinator has agreed: may the batch begin its transaction?"""
        if not self.pending:
            return
        request = self.pending[data.draw(st.integers(0, len(self.pending) - 1))]
        together = [
            other
            for other in self.pending
            if other.producer_id == request.producer_id and other.is_over == request.is_over
        ]
        mine = self.of(request.producer_id)
        newest = max(other.epoch for other in together)
        header = header_of(
            producer_id=request.producer_id, epoch=request.epoch, sequence=request.sequence, transactional=True
        )
        expected = None
        if mine and request.epoch < mine[-1].epoch:
            expected = ErrorCode.INVALID_PRODUCER_EPOCH
        elif request.is_over:
            expected = ErrorCode.INVALID_TXN_STATE
        elif (
            together[0].adds and request.sequence > 0 and all(batch.marker for batch in mine)
        ) or request.sequence > lowest_of(together, newest):
            expected = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        try:
            self.states.check_verified(header, request.verification)
            actual = None
        except KafkaError as error:
            actual = error.code
        assert actual == expected

    @rule(producer_id=producer_ids, commit=st.booleans(), bump=st.booleans())
    def end(self, producer_id: int, commit: bool, bump: bool) -> None:
        mine = self.of(producer_id)
        epoch = (mine[-1].epoch if mine else 0) + bump
        header = header_of(producer_id=producer_id, epoch=epoch)
        completed = self.states.apply_marker(header, self.offset, EndTxnMarker(commit, 0), 0)
        began = self.open.pop(producer_id, None)
        assert completed == (None if began is None else (producer_id, began, self.offset, not commit))
        self.settle(producer_id)
        self.history.append(Accepted(producer_id, epoch, -1, -1, self.offset, marker=True))
        self.offset += 1

    @rule()
    def restart_from_a_snapshot(self) -> None:
        data = encode_snapshot(self.states.entries.values())
        self.states = ProducerStates()
        self.states.load(decode_snapshot(data))
        self.since_snapshot = self.offset
        for request in self.pending:
            request.is_over = True

    @invariant()
    def open_transactions_agree(self) -> None:
        assert self.states.first_undecided_offset == min(self.open.values(), default=None)


def lowest_of(together: list[PendingVerification], newest_epoch: int) -> int:
    """Returns the lowest sequence of the newest requested epoch, since the last batch or marker."""
    return min(request.sequence for request in together if request.epoch == newest_epoch)


TestProducers = ProducersMachine.TestCase
