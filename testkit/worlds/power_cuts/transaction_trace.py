"""Traces of a broker with transactional producers, and their promises after a crash.

`flushed` is a broker with log.flush.interval.messages=1, for its internal topics as for all others. Then, as after the
death of the process alone, every answer holds: decisions, records, offsets. With the defaults a power cut may take any
part of each log. The rest must be consistent nevertheless: readers get the records by the markers, and an open
transaction either has a coordinator that ends it, or is found by `kwire txn list --hanging`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from kwire_protocol.errors import ErrorCode

from kwire.coordinators.deadlines import PAUSES_MS
from kwire.names.topic_names import TRANSACTION_STATE
from kwire.replicas.partition import Partition
from testkit.scenes.direct import clients
from testkit.scenes.direct.broker_driver import BrokerDriver, TopicPartition
from testkit.scenes.direct.clients import TV2, Batch, Identity
from testkit.scenes.direct.driven_cluster import abort_what_hangs
from testkit.scenes.direct.reading import committed_offsets
from testkit.worlds.power_cuts.broker_trace import SETTINGS, BrokerTrace, Key, NextBrokerLife, key_of
from testkit.worlds.power_cuts.folds import check_readers, committed_values
from testkit.worlds.power_cuts.history import Batch as LoggedBatch
from testkit.worlds.power_cuts.history import Flushed
from testkit.worlds.power_cuts.promises import Committed, End, Event, Promises, Sending, Work
from testkit.worlds.power_cuts.sweep import Moment

MAX_TIMEOUT_MS = 900_000
"""The default of transaction.max.timeout.ms."""
FLUSHED = {**SETTINGS, "log.flush.interval.messages": "1"}

SETTLING_MS = (MAX_TIMEOUT_MS + 1, PAUSES_MS.longest)
"""After these all time-outs are over, and all markers are in."""


class TransactionTrace(BrokerTrace):
    """A trace. `promises` are those to producers and groups in this life, and in those before."""

    def __init__(self, name: str, steps: Callable[[Any], None], *, flushed: bool = False) -> None:
        super().__init__(name, steps)
        self.flushed = flushed
        self.settings = FLUSHED if flushed else SETTINGS
        self.promises = Promises()
        self.has_lost_power = False
        """True if the power failed in an earlier life."""

    # -- what happens

    def _open_after(self, moment: Moment) -> dict[Key, list[LoggedBatch]]:
        found = super()._open_after(moment)
        self.driver.on_flushed = self._check_promises
        self._note_flushed(self._now)
        self._check_promises()
        return found

    def producer(self, transactional_id: str, version: int = TV2) -> Producer:
        """Starts a producer, which ends an open transaction of the id."""
        work = self.promises.open_work(transactional_id)
        if work is not None:
            work.end = End(self._now, committed=False)
            with self.in_flight(work.end):
                error, _ = clients.init(self.driver, transactional_id)
            assert error is ErrorCode.CONCURRENT_TRANSACTIONS, error.name
            self._advance(PAUSES_MS.first)
        with self.in_flight(Event(self._now)):
            error, identity = clients.init(self.driver, transactional_id)
        assert error is ErrorCode.NONE, error.name
        return Producer(self, transactional_id, identity, version)

    def commit(self, group_id: str, topic: str, offset: int) -> None:
        committed = Committed(self._now, group_id, (topic, 0), offset)
        self.promises.commits.append(committed)
        super().commit(group_id, topic, offset)
        self._note_flushed(int(committed.began))
        committed.answered = self._now

    def time_passes(self) -> None:
        """Every open transaction is aborted."""
        ends = [(work, End(self._now, committed=False)) for work in self.promises.works if work.is_open]
        for work, end in ends:
            work.end = end
        began = self._now
        for by_ms in SETTLING_MS:
            self._advance(by_ms)
        self._note_flushed(began)
        for _, end in ends:
            end.answered = self._now

    def _advance(self, by_ms: int) -> None:
        self.times.append((self._now, self.driver.now_ms + by_ms))
        with self._appending():
            self.driver.advance(by_ms)

    @contextmanager
    def in_flight(self, *events: Event) -> Iterator[None]:
        """Covers a request, and the work of the broker that follows from it."""
        began = self._now

        def answered() -> None:
            for event in events:
                event.answered = self._now
            self._check_promises()

        self.driver.on_answered = answered
        with self._appending():
            yield
        self._note_flushed(began)

    def _note_flushed(self, began: int) -> None:
        """Between requests nothing waits for its flush."""
        for partition in self.broker.partitions if self.flushed else ():
            flushed = Flushed(began, partition.log_end_offset)
            flushed.answered = self._now
            self._history(key_of(partition)).events.append(flushed)

    def _check_promises(self) -> None:
        self.promises.check(
            {topic_partition_of(it): check_readers(self.driver, it) for it in data_partitions(self.driver)}, self._now
        )

    # -- what must hold

    def _check_more(self, driver: BrokerDriver, moment: Moment) -> None:
        promises = self.promises.at(moment.position)
        is_durable = self.flushed or not (moment.lost_power or self.has_lost_power)
        given = committed_of(driver)
        if is_durable:
            promises.check_at_start(given, lambda name: clients.describe(driver, name))
        settle(driver)
        given = committed_of(driver)
        hung = abort_what_hangs(driver)
        for partition in driver.broker.partitions:
            assert partition.last_stable_offset == partition.log_end_offset, f"{partition.topic} is stuck"
        if hung:
            assert not is_durable, hung
            committed_of(driver)
        if is_durable:
            promises.check_at_end(given, lambda name: clients.describe(driver, name))
            promises.check_offsets(given, lambda group, tp: committed_offsets(driver, group, [tp], stable=True)[tp])

    def next_life(self, moment: Moment) -> BrokerTrace:
        return NextTransactionLife(self, moment)


@attrs.define(eq=False)
class Producer:
    """A transactional one. Its first request after an end begins the next transaction."""

    trace: TransactionTrace
    transactional_id: str
    identity: Identity
    version: int
    sequences: dict[TopicPartition, int] = attrs.field(factory=dict)
    work: Work | None = None
    added: set[TopicPartition | str] = attrs.field(factory=set)

    def send(self, topic: str, count: int = 1) -> None:
        tp = (topic, 0)
        values = tuple(b"%s %d" % (self.transactional_id.encode(), self._number()) for _ in range(count))
        sending = Sending(self.trace._now, tp, values)
        work = self._work()
        if self.version < TV2:
            self._add(tp, lambda driver: clients.add_partitions(driver, self.transactional_id, self.identity, [tp]))
        work.sendings.append(sending)
        work.added.append(sending)
        sequence = self.sequences.get(tp, 0)
        batch = Batch(tp, self.identity, sequence, tuple((b"%d" % number, it) for number, it in enumerate(values)))
        with self.trace.in_flight(sending):
            answers = clients.produce(self.trace.driver, [batch], self.transactional_id, self.version)
        assert answers[tp][0] is ErrorCode.NONE, answers
        self.sequences[tp] = sequence + count

    def commit(self, group_id: str, topic: str, offset: int) -> None:
        work = self._work()
        if self.version < TV2:
            self._add(
                group_id, lambda driver: clients.add_offsets(driver, self.transactional_id, self.identity, group_id)
            )
        committed = Committed(self.trace._now, group_id, (topic, 0), offset, work)
        self.trace.promises.commits.append(committed)
        work.added.append(committed)
        with self.trace.in_flight(committed):
            error = clients.commit_in_transaction(
                self.trace.driver,
                self.transactional_id,
                self.identity,
                group_id,
                (topic, 0),
                offset,
                version=self.version,
            )
        assert error is ErrorCode.NONE, error.name

    def end(self, *, committed: bool) -> None:
        work, self.work = self.work, None
        assert work is not None
        work.end = End(self.trace._now, committed)
        with self.trace.in_flight(work.end):
            error, following = clients.end(
                self.trace.driver, self.transactional_id, self.identity, committed=committed, version=self.version
            )
        assert error is ErrorCode.NONE, error.name
        if clients.describe(self.trace.driver, self.transactional_id).transaction_state.startswith("Prepare"):
            self.trace._advance(PAUSES_MS.longest)  # a client would come again
        if following != self.identity:
            self.sequences.clear()
        self.identity = following
        self.added.clear()

    def _work(self) -> Work:
        if self.work is None:
            self.work = Work(self.transactional_id, self.identity, self.trace._now)
            self.trace.promises.works.append(self.work)
        return self.work

    def _add(self, what: TopicPartition | str, call: Callable[[BrokerDriver], ErrorCode]) -> None:
        if what not in self.added:
            event = Event(self.trace._now)
            self._work().added.append(event)
            with self.trace.in_flight(event):
                error = call(self.trace.driver)
            assert error is ErrorCode.NONE, error.name
            self.added.add(what)

    def _number(self) -> int:
        self.trace.salt += 1
        return self.trace.salt


class NextTransactionLife(NextBrokerLife, TransactionTrace):
    """Restarts, lets time pass, and has transactions again: of the same producer, where nothing of it can be lost."""

    def __init__(self, before: TransactionTrace, moment: Moment) -> None:
        super().__init__(before, moment)
        self.flushed, self.settings = before.flushed, before.settings
        self.promises = before.promises.at(moment.position)
        self.has_lost_power = before.has_lost_power or moment.lost_power

    def _continue(self) -> None:
        is_durable = self.flushed or not self.has_lost_power
        self.time_passes()
        if is_durable:
            self.promises.settle(committed_of(self.driver), self._now)
        for topic in sorted({"t", "u"} - self.broker.partitions.by_name.keys()):
            self.create_topic(topic)
        producer = self.producer("one" if is_durable else "another")
        for committed in (True, False):
            for topic in [it.topic for it in data_partitions(self.driver)]:
                producer.send(topic)
            producer.commit("later", "t", 6)
            producer.end(committed=committed)
        super()._continue()


def data_partitions(driver: BrokerDriver) -> list[Partition]:
    return [it for it in driver.broker.partitions if not it.is_internal]


def topic_partition_of(partition: Partition) -> TopicPartition:
    return partition.topic, partition.index


def committed_of(driver: BrokerDriver) -> Mapping[TopicPartition, list[bytes]]:
    """Returns the committed records, even if an earlier open transaction still holds readers back."""
    given = {}
    for it in driver.broker.partitions:
        if it.topic != TRANSACTION_STATE:
            check_readers(driver, it)
            given[topic_partition_of(it)] = committed_values(it)
    return given


def settle(driver: BrokerDriver) -> None:
    for by_ms in SETTLING_MS:
        driver.advance(by_ms)
