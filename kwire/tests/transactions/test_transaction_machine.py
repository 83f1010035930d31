"""Random producers, zombies among them, against one transaction machine and some partitions: whatever they do, and
whatever fails, a transaction is committed everywhere if its producer got that answer, and nowhere otherwise."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from kwire_protocol.errors import ErrorCode

from devtools.suite.tiers import examples
from kwire.transactions.config import TransactionConfig
from testkit.scenes.transactions_shard import ShardDriver

IDS = ("fresh", "other", "tired")
PARTITIONS = [("t", 0), ("t", 1), ("u", 0)]
TIMEOUT_MS = 10_000

Identity = tuple[int, int]


@attrs.define(eq=False)
class Client:
    """A producer by its own state."""

    transactional_id: str
    identity: Identity
    version: int


@attrs.define(eq=False)
class Work:
    """A transaction as its producer sees it."""

    transactional_id: str
    added: set[tuple[str, int]] = attrs.field(factory=set)
    answered: bool | None = None
    """The answer to its producer about its end."""


class TransactionMachine(RuleBasedStateMachine):
    clients = Bundle("clients")

    @initialize(version=st.sampled_from([1, 2, 2]))
    def start(self, version: int) -> None:
        self.driver = ShardDriver(TransactionConfig(id_expiration_ms=200_000), version=version)
        self.driver.producer("tired", epoch=0, timeout_ms=TIMEOUT_MS)
        self.driver.rewrite("tired", producer_epoch=32_764)
        self.work: dict[Identity, Work] = {}
        """The open work of each producer without an answer about its end."""
        self.fenced: dict[str, Identity] = {}
        """Below it, producers of this id have been fenced."""
        self.highest: dict[str, Identity] = {}
        self.stable: dict[tuple[str, int], int] = {}

    # What clients do

    @rule(target=clients, transactional_id=st.sampled_from(IDS), classic=st.booleans())
    def a_producer_starts(self, transactional_id: str, classic: bool) -> Any:
        was_open = self.driver.state(transactional_id) == "Ongoing"
        producer_id, epoch = self.driver.producer_of(transactional_id)
        answer = self.driver.init(transactional_id, timeout_ms=TIMEOUT_MS)
        if answer.error is ErrorCode.CONCURRENT_TRANSACTIONS and was_open:
            self.fenced[transactional_id] = (producer_id, epoch + 1)
        if answer.error is not ErrorCode.NONE:
            return multiple()
        identity = answer.producer_id, answer.epoch
        assert identity > self.fenced.get(transactional_id, (0, 0)) or epoch == 0
        self.fenced[transactional_id] = identity
        return Client(transactional_id, identity, 0 if classic else self.driver.version)

    @rule(client=clients)
    def a_producer_requests_the_next_epoch(self, client: Client) -> None:
        is_known = self.driver.state(client.transactional_id) != "TRANSACTIONAL_ID_NOT_FOUND"
        before = self.driver.producer_of(client.transactional_id)
        answer = self.driver.init(client.transactional_id, expected=client.identity, timeout_ms=TIMEOUT_MS)
        if answer.error is ErrorCode.NONE:
            if is_known and client.identity < self.fenced.get(client.transactional_id, (0, 0)):
                assert before == (answer.producer_id, answer.epoch), "no epoch is raised by a fenced producer"
            client.identity = answer.producer_id, answer.epoch

    @rule(client=clients, partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def partitions_are_added(self, client: Client, partitions: set[tuple[str, int]]) -> None:
        self.add(client, partitions)

    def add(self, client: Client, partitions: set[tuple[str, int]]) -> bool:
        before = self.driver.producer_of(client.transactional_id)
        error = self.driver.add(
            client.identity,
            *partitions,
            transactional_id=client.transactional_id,
            version=client.version,
        )
        if error is ErrorCode.NONE:
            assert client.identity >= self.fenced.get(client.transactional_id, (0, 0)), "a fenced producer adds nothing"
            assert client.identity == before
            self.work.setdefault(client.identity, Work(client.transactional_id)).added |= partitions
        return error is ErrorCode.NONE

    @rule(client=clients, partition=st.sampled_from(PARTITIONS))
    def records_are_produced(self, client: Client, partition: tuple[str, int]) -> None:
        log = self.driver.partitions[partition]
        is_there = log.open.get(client.identity[0]) == client.identity[1]
        if client.version >= 2:
            is_in = is_there or self.add(client, {partition})
        else:
            verified = self.driver.verify(client.identity, partition, transactional_id=client.transactional_id)
            is_in = is_there or verified == [ErrorCode.NONE]
        work = self.work.get(client.identity)
        # A client's part: it has begun and not ended, and a classic one has added the partition itself.
        if is_in and work is not None and partition in work.added:
            log.produce(*client.identity, work)

    @rule(client=clients, committed=st.booleans())
    def a_transaction_ends(self, client: Client, committed: bool) -> None:
        before = self.driver.producer_of(client.transactional_id), len(self.driver.log)
        answer = self.driver.end(
            client.identity,
            committed,
            transactional_id=client.transactional_id,
            version=client.version,
        )
        if answer.error is not ErrorCode.NONE:
            return
        if client.identity < self.fenced.get(client.transactional_id, (0, 0)):
            after = self.driver.producer_of(client.transactional_id), len(self.driver.log)
            assert after == before, "a fenced producer ends nothing"
        work = self.work.pop(client.identity, None)
        if work is not None:
            work.answered = committed
        if client.version >= 2:
            assert (answer.producer_id, answer.epoch) > client.identity
            client.identity = answer.producer_id, answer.epoch

    # What the world does

    @rule(by_ms=st.sampled_from([1, 100, 1_000, 9_999, 10_000, 300_000, 4_000_000]))
    def time_passes(self, by_ms: int) -> None:
        self.driver.advance(by_ms)

    @rule(count=st.integers(1, 3))
    def some_appends_fail(self, count: int) -> None:
        self.driver.failing_appends = count

    @rule(partitions=st.sets(st.sampled_from(PARTITIONS)))
    def some_partitions_cannot_be_reached(self, partitions: set[tuple[str, int]]) -> None:
        self.driver.unreachable = set(partitions)

    @rule()
    def the_broker_crashes(self) -> None:
        self.driver.failing_appends = 0
        self.driver.restart()

    @rule()
    def the_broker_hands_the_ids_over(self) -> None:
        self.driver.run(self.driver.shard.unload(now=self.driver.now))
        assert self.driver.shard.next_deadline_ms() is None or not self.driver.listed()
        self.the_broker_crashes()

    # What holds, always

    @invariant()
    def a_transaction_has_one_end_and_it_is_the_one_that_was_answered(self) -> None:
        if not hasattr(self, "driver"):
            return
        undecided: dict[str, set[Work]] = {}
        for log in self.driver.partitions.values():
            for offset, batch in enumerate(log.batches):
                if isinstance(work := batch.transaction, Work):
                    outcome = log.outcome(offset)
                    if outcome is None:
                        undecided.setdefault(work.transactional_id, set()).add(work)
                    else:
                        assert outcome == (work.answered is True)
        assert all(len(works) == 1 for works in undecided.values()), "an id has one open transaction at most"

    @invariant()
    def every_request_was_answered(self) -> None:
        if hasattr(self, "driver"):
            assert self.driver.tokens == set(self.driver.replies)

    @invariant()
    def epochs_and_stable_offsets_never_go_back(self) -> None:
        if not hasattr(self, "driver"):
            return
        for transactional_id in IDS:
            identity = self.driver.producer_of(transactional_id)
            if self.driver.state(transactional_id) != "TRANSACTIONAL_ID_NOT_FOUND":
                assert identity >= self.highest.get(transactional_id, identity)
                self.highest[transactional_id] = identity
                assert identity[1] < 32_767 or self.driver.state(transactional_id) != "Ongoing"
        for name, log in self.driver.partitions.items():
            assert log.last_stable_offset >= self.stable.get(name, 0)
            self.stable[name] = log.last_stable_offset

    @invariant()
    def data_that_is_not_stable_belongs_to_a_transaction_that_will_end(self) -> None:
        if not hasattr(self, "driver"):
            return
        for name, log in self.driver.partitions.items():
            for offset, batch in enumerate(log.batches):
                if isinstance(work := batch.transaction, Work) and log.outcome(offset) is None:
                    described = self.driver.described(work.transactional_id)
                    assert described.transaction_state in ("Ongoing", "PrepareCommit", "PrepareAbort")
                    assert name in {(topic.topic, index) for topic in described.topics for index in topic.partitions}

    @invariant()
    def whatever_is_open_or_prepared_has_a_deadline(self) -> None:
        if not hasattr(self, "driver"):
            return
        next_ms = self.driver.shard.next_deadline_ms()
        for transactional_id in IDS:
            described = self.driver.described(transactional_id)
            if described.transaction_state == "Ongoing":
                # Where an abort failed, it is tried again some seconds later.
                latest_ms = max(described.transaction_start_time_ms + TIMEOUT_MS, self.driver.now_ms + 5_000)
            elif described.transaction_state.startswith("Prepare"):
                latest_ms = self.driver.now_ms + 5_000
            else:
                continue
            assert next_ms is not None
            assert next_ms <= latest_ms

    @invariant()
    def a_replay_shows_the_same(self) -> None:
        if not hasattr(self, "driver"):
            return
        live, again = self.driver.shard.describe(IDS), self.driver.replayed().describe(IDS)
        for ours, theirs in zip(live, again, strict=True):
            if ours.transaction_state.startswith("Prepare"):  # what is marked already is not in the log
                theirs.topics = ours.topics
            assert ours == theirs

    def teardown(self) -> None:
        """In the end everything is decided, wherever it stopped."""
        if not hasattr(self, "driver"):
            return
        self.driver.failing_appends = 0
        self.driver.unreachable.clear()
        self.driver.advance(2 * TIMEOUT_MS)
        self.a_transaction_has_one_end_and_it_is_the_one_that_was_answered()
        for log in self.driver.partitions.values():
            assert log.last_stable_offset == len(log.batches)
        assert self.driver.listed(state_filters=["Ongoing", "PrepareCommit", "PrepareAbort"]) == set()


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
