"""The state machine of the search for a broken promise of transactions."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from kwire_protocol.errors import ErrorCode

from kwire.coordinators.deadlines import PAUSES_MS
from kwire.runtime.futures import at_once
from kwire.transactions.transaction import LAST_USABLE_EPOCH
from testkit.scenes.direct import clients
from testkit.scenes.direct.broker_driver import TopicPartition
from testkit.scenes.direct.clients import CLASSIC, NOBODY, TIMEOUT_MS, TV2, Batch, Identity
from testkit.scenes.direct.reading import WHOLE, fetch
from testkit.worlds.exactly_once.model import Piece
from testkit.worlds.exactly_once.scene import (
    COMPACTED,
    DELETABLE,
    ID_EXPIRATION_MS,
    OFFSETS,
    PARTITIONS,
    STATE,
    WATCHED,
)
from testkit.worlds.exactly_once.world import GROUPS, IDS, World

KEYS = (b"a", b"b", b"c")


partitions = st.sampled_from(PARTITIONS)


some_partitions = st.sets(partitions, min_size=1, max_size=3)


groups = st.sampled_from(GROUPS)


@attrs.define(eq=False)
class Client:
    """A producer with its own view of its state. `before` is its identity before the last end of a transaction."""

    transactional_id: str
    identity: Identity
    version: int
    before: Identity = NOBODY
    sent: list[Batch] = attrs.field(factory=list)


class ExactlyOnceMachine(RuleBasedStateMachine):
    producers = Bundle("producers")

    @initialize(target=producers, versions=st.tuples(*[st.sampled_from([CLASSIC, TV2])] * len(IDS)))
    def start(self, versions: tuple[int, ...]) -> Any:
        self.world = World()
        self.given: set[Identity] = set()
        self.sequences: dict[tuple[Identity, TopicPartition], int] = {}
        self.acknowledged: dict[tuple[TopicPartition, Identity, int], int] = {}
        """Base offsets, by place, producer and sequence."""
        self.sent_again: set[tuple[Identity, TopicPartition]] = set()
        self.number = 0
        self.plain: Identity = (at_once(self.world.scene.broker.producer_ids.draw()), 0)
        begun = [self.begin(name, version) for name, version in zip(IDS, versions, strict=True)]
        self.tire(begun[-1])
        return multiple(*begun)

    def tire(self, client: Client | None) -> None:
        """Two more epochs, and its producer id is used up."""
        assert client is not None
        self.world.scene.use_up_epochs(client.transactional_id, LAST_USABLE_EPOCH - 2)
        client.identity = (client.identity[0], LAST_USABLE_EPOCH - 2)
        self.world.current[client.transactional_id] = client.identity
        self.given.add(client.identity)

    def pairs(self, count: int, key: bytes) -> tuple[tuple[bytes, bytes], ...]:
        self.number += count
        return tuple((key, b"%d" % (self.number - count + at)) for at in range(count))

    def may_continue(self, client: Client) -> bool:
        name = client.transactional_id
        return self.world.may_begin(name, client.identity) and not self.world.is_overdue(name)

    # -- what producers do

    @rule(target=producers, transactional_id=st.sampled_from(IDS), version=st.sampled_from([CLASSIC, TV2, TV2]))
    def a_producer_starts(self, transactional_id: str, version: int) -> Any:
        client = self.begin(transactional_id, version)
        return multiple() if client is None else client

    def begin(self, transactional_id: str, version: int) -> Client | None:
        was_open = transactional_id in self.world.work
        error, identity = clients.init(self.world.scene, transactional_id)
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and was_open:
            self.world.fence(transactional_id)
        if error is not ErrorCode.NONE:
            assert error is ErrorCode.CONCURRENT_TRANSACTIONS or not self.world.is_healthy(STATE)
            return None
        assert not was_open, "no producer begins while a transaction is open"
        assert identity not in self.given, "whoever starts fences whoever was there"
        self.given.add(identity)
        self.world.current[transactional_id] = identity
        return Client(transactional_id, identity, version)

    @rule(client=producers)
    def a_producer_requests_the_next_epoch(self, client: Client) -> None:
        """Requests the next epoch (KIP-360). A producer that got that epoch before gets it again."""
        name = client.transactional_id
        was_open, before = name in self.world.work, self.world.current.get(name)
        error, identity = clients.init(self.world.scene, name, client.identity)
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and was_open:
            self.world.fence(name)
        if error is not ErrorCode.NONE:
            return
        assert not was_open
        assert before in (client.identity, identity) or before is None, "no epoch is raised by a fenced producer"
        self.given.add(identity)
        self.world.current[name] = client.identity = identity

    @rule(
        client=producers,
        tos=st.lists(some_partitions, min_size=1, max_size=3),
        group=st.none() | groups,
        committed=st.sampled_from([True, True, False]),
    )
    def a_transaction_is_made(
        self, client: Client, tos: list[set[TopicPartition]], group: str | None, committed: bool
    ) -> None:
        """Runs a transaction from its beginning, or from its state, to its end: the usual work of producers."""
        for number, to in enumerate(tos):
            self.partitions_are_added(client, to)
            self.records_are_produced(client, to, 1 + number % 2, KEYS[number])
        if group is not None:
            self.offsets_are_sent_to_a_transaction(client, group, PARTITIONS[0])
        self.a_transaction_ends(client, committed)

    @rule(client=producers, to=some_partitions, count=st.integers(1, 3))
    def a_transaction_is_begun(self, client: Client, to: set[TopicPartition], count: int) -> None:
        self.partitions_are_added(client, to)
        self.records_are_produced(client, to, count, KEYS[0])

    @rule(client=producers, added=st.sets(partitions, min_size=1))
    def partitions_are_added(self, client: Client, added: set[TopicPartition]) -> None:
        if client.version >= TV2:
            return
        must = self.may_continue(client) and self.world.is_healthy(STATE)
        error = clients.add_partitions(self.world.scene, client.transactional_id, client.identity, sorted(added))
        assert error is ErrorCode.NONE or not must, error.name
        if error is ErrorCode.NONE:
            self.world.joined(client.transactional_id, client.identity, *added)

    @rule(client=producers, to=some_partitions, count=st.integers(1, 3), key=st.sampled_from(KEYS))
    def records_are_produced(self, client: Client, to: set[TopicPartition], count: int, key: bytes) -> None:
        batches = [
            Batch(
                tp,
                client.identity,
                self.sequences.get((client.identity, tp), 0),
                self.pairs(count, key),
            )
            for tp in sorted(to)
        ]
        client.sent += batches
        self.produce(client, batches, are_new=True)

    @rule(client=producers, which=st.integers(0, 100))
    def a_batch_is_sent_again(self, client: Client, which: int) -> None:
        if client.sent:
            self.produce(client, [client.sent[-1 - which % min(len(client.sent), 8)]], are_new=False)

    def produce(self, client: Client, batches: list[Batch], *, are_new: bool) -> None:
        name = client.transactional_id
        may = self.world.may_begin(client.transactional_id, client.identity) and client.identity == batches[0].identity
        may_continue = may and not self.world.is_overdue(name)
        if not are_new:
            self.sent_again.update((batch.identity, batch.tp) for batch in batches)
        answers = clients.produce(self.world.scene, batches, name, client.version)
        for batch in batches:
            log = self.world.logs[batch.tp]
            error, base_offset = answers[batch.tp]
            if may and client.version >= TV2:
                self.world.joined_on_the_way(name, client.identity)
            work = self.world.work.get(name)
            known = self.acknowledged.get((batch.tp, batch.identity, batch.sequence))
            if error is not ErrorCode.NONE:
                is_in = client.version >= TV2 or (work is not None and batch.tp in work.added)
                must = may_continue and is_in and self.world.is_healthy(STATE, batch.tp) and not log.has_lost
                # A batch sent again for which the coordinator is consulted, since its transaction is over there, is
                # remembered as the first of what follows (as in Kafka).
                if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    must = must and (batch.identity, batch.tp) not in self.sent_again
                assert not must or not are_new, f"{batch} is refused: {error.name}"
            elif known is None or base_offset != known:
                assert known is None or log.has_lost, f"{batch} is there twice"
                if (late := log.late_for(batch.identity)) is not None:
                    work = late.work
                else:
                    assert self.world.current.get(name) == batch.identity, f"{batch} is of a fenced producer"
                    assert work is not None, f"{batch} is of no transaction"
                    assert batch.tp in work.added, f"{batch} is where the transaction is not"
                if base_offset > log.end_offset:
                    self.world.catch_up(log)
                log.take(base_offset, batch.pairs, batch.identity, work)
                self.acknowledged[batch.tp, batch.identity, batch.sequence] = base_offset
                self.sequences[batch.identity, batch.tp] = batch.sequence + len(batch.pairs)

    @rule(client=producers, group=groups, of=partitions)
    def offsets_are_sent_to_a_transaction(self, client: Client, group: str, of: TopicPartition) -> None:
        name = client.transactional_id
        must = self.may_continue(client) and self.world.is_healthy(STATE, OFFSETS)
        if client.version < TV2:
            error = clients.add_offsets(self.world.scene, name, client.identity, group)
            assert error is ErrorCode.NONE or not must, error.name
            if error is ErrorCode.NONE:
                self.world.joined(client.transactional_id, client.identity, OFFSETS)
        self.number += 1
        log, is_current = self.world.logs[OFFSETS], self.world.may_begin(client.transactional_id, client.identity)
        error = clients.commit_in_transaction(
            self.world.scene, name, client.identity, group, of, self.number, version=client.version
        )
        assert error is ErrorCode.NONE or not must, error.name
        if is_current and client.version >= TV2:
            self.world.joined_on_the_way(name, client.identity)
        if error is ErrorCode.NONE:
            assert self.world.current.get(name) == client.identity, "offsets of a fenced producer"
            work = self.world.work.get(name)
            assert work is not None, "offsets of no transaction"
            assert OFFSETS in work.added, "offsets that no marker would end"
            self.world.catch_up(log)
            log.take_commit((group, of, self.number), client.identity, work)

    @rule(client=producers, committed=st.booleans())
    def a_transaction_ends(self, client: Client, committed: bool) -> None:
        before = client.identity
        if self.end(client, before, committed=committed):
            client.before = before

    @rule(client=producers, committed=st.booleans())
    def an_end_is_requested_again(self, client: Client, committed: bool) -> None:
        if client.before != NOBODY:
            self.end(client, client.before, committed=committed)

    def end(self, client: Client, identity: Identity, *, committed: bool) -> bool:
        name = client.transactional_id
        is_current = self.world.current.get(name) == identity
        must = (
            is_current
            and name in self.world.work
            and self.world.state(name) == "Ongoing"
            and self.world.is_healthy(STATE)
        )
        error, following = clients.end(self.world.scene, name, identity, committed=committed, version=client.version)
        if error is not ErrorCode.NONE:
            assert not must, f"the end of {name}'s transaction is refused: {error.name}"
            return False
        if is_current:
            if name not in self.world.work:
                # A retry of the classic kind, or an end of nothing, which only version 2 has.
                assert self.world.last_outcome.get(name) == committed or (client.version >= TV2 and not committed)
            self.world.decide(name, committed=committed)
        else:
            assert client.version >= TV2, "a fenced producer ends nothing"
            assert name not in self.world.work, "a fenced producer ends nothing"
            assert self.world.last_outcome[name] == committed, "it ended otherwise"
        if client.version >= TV2:
            assert following > identity
            self.given.add(following)
            self.world.current[name] = client.identity = following
        return True

    # -- what others do

    @rule(to=partitions, count=st.integers(1, 2), key=st.sampled_from(KEYS), idempotent=st.booleans())
    def records_outside_of_transactions_are_produced(
        self, to: TopicPartition, count: int, key: bytes, idempotent: bool
    ) -> None:
        identity = self.plain if idempotent else NOBODY
        sequence = self.sequences.get((identity, to), 0) if idempotent else -1
        batch = Batch(to, identity, sequence, self.pairs(count, key), transactional=False)
        error, base_offset = clients.produce(self.world.scene, [batch])[to]
        assert error is ErrorCode.NONE or not self.world.is_healthy(to), error.name
        if error is ErrorCode.NONE:
            self.sequences[identity, to] = sequence + count
            self.world.logs[to].take(base_offset, batch.pairs)

    @rule(group=groups, of=partitions)
    def offsets_outside_of_transactions_are_committed(self, group: str, of: TopicPartition) -> None:
        self.number += 1
        error = clients.commit(self.world.scene, group, of, self.number)
        assert error is ErrorCode.NONE or not self.world.is_healthy(OFFSETS), error.name
        if error is ErrorCode.NONE:
            self.world.logs[OFFSETS].take_commit((group, of, self.number))

    @rule(to=partitions, key=st.sampled_from(KEYS))
    def a_transaction_hangs(self, to: TopicPartition, key: bytes) -> None:
        """Leaves an open transaction, as a broker does that did not verify it at the coordinator."""
        if not self.world.is_healthy(to):
            return
        identity = (at_once(self.world.scene.broker.producer_ids.draw()), 0)
        batch = Batch(to, identity, 0, self.pairs(1, key))
        data = batch.encode(self.world.scene.now_ms)
        base_offset = self.world.scene.append(to, data)
        self.world.logs[to].take(base_offset, batch.pairs, identity)

    @rule(tp=st.sampled_from(WATCHED), which=st.integers(0, 10))
    def an_admin_aborts_what_is_open(self, tp: TopicPartition, which: int) -> None:
        log = self.world.logs[tp]
        if log.open and not log.has_lost:
            producer_id = sorted(log.open)[which % len(log.open)]
            self.abort(tp, log.open[producer_id])

    def abort(self, tp: TopicPartition, piece: Piece) -> None:
        error = clients.abort_as_admin(self.world.scene, tp, piece.identity[0])
        assert error is ErrorCode.NONE or not self.world.is_healthy(tp), error.name
        piece.ended_by_admin = error is ErrorCode.NONE

    @rule(by_ms=st.sampled_from([1, 100, PAUSES_MS.longest, TIMEOUT_MS // 2, TIMEOUT_MS, ID_EXPIRATION_MS + 200_000]))
    def time_passes(self, by_ms: int) -> None:
        self.world.scene.advance(by_ms)

    @rule(failing=st.sets(st.sampled_from((*WATCHED, STATE)), min_size=1, max_size=2))
    def appends_fail(self, failing: set[TopicPartition]) -> None:
        self.world.set_failing(failing)

    @rule()
    def appends_succeed_again(self) -> None:
        self.world.set_failing(set())

    @rule(tp=st.sampled_from(DELETABLE), part=st.integers(0, 4))
    def records_are_deleted(self, tp: TopicPartition, part: int) -> None:
        log = self.world.logs[tp]
        offset = log.log_start_offset + (log.end_offset - log.log_start_offset) * part // 4
        if self.world.is_healthy(tp):
            assert clients.delete_records(self.world.scene, tp, offset) is ErrorCode.NONE

    @rule(rolled=st.sets(st.sampled_from((*WATCHED, STATE)), min_size=1))
    def segments_are_rolled(self, rolled: set[TopicPartition]) -> None:
        for tp in sorted(rolled):
            self.world.scene.roll(tp)

    @rule()
    def what_is_old_goes(self) -> None:
        self.world.scene.retain()

    @rule(client=producers, amidst=st.booleans())
    def logs_are_compacted(self, client: Client, amidst: bool) -> None:
        """Compacts, in the middle of a transaction, if the client may begin one."""
        if amidst:
            self.a_transaction_is_begun(client, {COMPACTED}, 1)
        self.world.compact(COMPACTED, OFFSETS, STATE)

    @rule()
    def checkpoints_are_taken(self) -> None:
        self.world.scene.checkpoint()

    @rule(clean=st.booleans(), later_ms=st.sampled_from([0, 0, TIMEOUT_MS]))
    def the_broker_restarts(self, clean: bool, later_ms: int) -> None:
        self.world.restart(clean=clean)
        self.world.scene.advance(later_ms)

    @rule(
        client=producers,
        to=partitions,
        failing=st.sampled_from((*WATCHED, STATE)),
        committed=st.booleans(),
        later_ms=st.sampled_from([0, 1_000, ID_EXPIRATION_MS + 200_000]),
    )
    def a_transaction_ends_while_appends_fail(
        self, client: Client, to: TopicPartition, failing: TopicPartition, committed: bool, later_ms: int
    ) -> None:
        """Ends a transaction so that it is prepared and lacks a marker, or is not even decided."""
        self.a_transaction_is_begun(client, {to, failing} & set(PARTITIONS), 1)
        self.world.set_failing({failing})
        self.a_transaction_ends(client, committed)
        self.world.scene.advance(later_ms)

    @rule(tp=partitions, part=st.integers(0, 8), max_bytes=st.sampled_from([1, 200, 500, WHOLE]))
    def a_consumer_reads(self, tp: TopicPartition, part: int, max_bytes: int) -> None:
        log = self.world.logs[tp]
        offset = log.log_start_offset + (log.end_offset - log.log_start_offset) * part // 8
        log.check_committed(fetch(self.world.scene, tp, offset, committed=True, max_bytes=max_bytes), offset)

    @invariant()
    def all_is_as_it_was_acknowledged(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Checks that in the end all is decided, and that any reader gets the right records, before and after a
        restart.
        """
        if not hasattr(self, "world"):
            return
        self.world.set_failing(set())
        self.world.scene.advance(PAUSES_MS.longest)
        self.world.scene.advance(TIMEOUT_MS + PAUSES_MS.longest)
        self.world.check()
        for tp, log in self.world.logs.items():
            for piece in list(log.open.values()):
                assert piece.work is None or log.has_lost, f"{tp}: what began at {piece.first_offset} never ends"
        self.world.read_from_everywhere()
        self.world.restart(clean=False)
        self.world.check()
        self.world.read_from_everywhere()
