"""A lap: orders and kills; then the final state is compared with the books."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import attrs

from testkit.basics.waiting import eventually
from testkit.clients.confluent import Acknowledgements, producing
from testkit.clients.transactions.queries import (
    are_coordinators_loading,
    described_transactions,
    end_offset,
    group_offset,
    is_stable,
    open_producers,
    open_transactions,
)
from testkit.kills import harness
from testkit.kills.bank.auditor import Auditor, auditing
from testkit.kills.bank.books import Books, Order
from testkit.kills.bank.teller import Post
from testkit.kills.bank.tellers import Tellers
from testkit.kills.harness import Lap, Scenario
from testkit.kills.sigkill.killing import START_TAKES_S
from testkit.kills.sigkill.load import RECONNECT
from testkit.raw import topics
from testkit.raw.client import ConnectionClosed

TELLERS, ORDER_PARTITIONS = 3, 6
PARTITIONS, ACCOUNTS_IN_PARTITION = 6, 4
ORDERS_AT_ONCE = 100, 400
"""The number of orders written before a kill: the minimum, and the exclusive maximum."""
FLUSHED = {"flush.messages": "1"}
"""The configuration of the accounts' topic, in every other lap, from the second on: markers take time, and kills come
between them.
"""
TIMEOUT_MS = 3_000
ENDS_WITHIN_S = TIMEOUT_MS / 1000 + 5.0
"""The maximum time for an open transaction to end if only the broker ends it, on a busy machine."""
PROGRESS_WITHIN_S = 60.0
"""The maximum time for tellers to continue after a kill: an heir may be needed, a Java process start, librdkafka give
up.
"""
_PAUSES_FOR_S = 0.1


class Underneath(Protocol):
    """The system under the bank: a broker, or a cluster whose methods affect one node at a time."""

    @property
    def bootstrap(self) -> str:
        """The addresses for clients, separated by commas."""

    @property
    def log_file(self) -> Path: ...

    def kill(self) -> None:
        """Ends it with SIGKILL."""

    def begin_start(self) -> None:
        """Begins a start, without waiting until it serves."""

    def start(self) -> None:
        """After `kill`. Returns when it serves."""


@attrs.define
class Account(harness.Account):
    orders: int = 0
    left: int = 0
    stuck: int = 0
    fenced: int = 0
    left_open: int = 0
    longest_wait_s: float = 0.0
    longest_rest_s: float = 0.0
    longest_load_s: float = 0.0
    """The longest time from a start until the coordinators of transactions have loaded."""
    ended_by_themselves: int = 0
    """Nodes of a cluster that had to be started again without having been killed."""

    @property
    def progress(self) -> str:
        return f"{self.orders:,} orders booked"

    @property
    def outcome(self) -> str:
        return (
            f"{self.orders:,} orders, both halves of each booked once, the sum of "
            f"all accounts as it was; {self.left} tellers left with an error, {self.fenced} of them since they had an "
            f"heir, and {self.stuck} were stuck in their client; a half waited {self.longest_wait_s:.1f} s at most for "
            f"the other; the last tellers left {self.left_open} transactions open, which were over "
            f"{self.longest_rest_s:.1f} s later; coordinators loaded for {self.longest_load_s:.1f} s at most; "
            f"{self.ended_by_themselves} nodes ended by themselves"
        )


@attrs.define(eq=False)
class Bank(Scenario[Account]):
    """A bank. Topics of a lap begin with `name`. `folder` is for the output of tellers."""

    broker: Underneath
    folder: Path
    name: str
    ways: Mapping[str, Callable[[Day], None]] = attrs.field(factory=lambda: WAYS)
    maintain: Callable[[], None] = lambda: None
    """Called again and again while the bank waits, to start what has ended by itself."""
    ends_within_s: float = ENDS_WITHIN_S
    orders_at_once: tuple[int, int] = ORDERS_AT_ONCE
    account: Account = attrs.field(factory=Account)
    kills_in_lap = 10
    _day: Day | None = None

    def run_lap(self, lap: Lap) -> None:
        self._day = Day(self, lap)
        self._day.run()

    def state(self) -> str:
        return "" if self._day is None else self._day.state()


@attrs.define(eq=False)
class Day:
    """A lap of the bank, with topics and tellers of its own, which stop in the end."""

    bank: Bank
    lap: Lap
    books: Books = attrs.field(init=False)
    tellers: Tellers = attrs.field(init=False)
    _auditor: Auditor = attrs.field(init=False)
    _described: str = ""
    """The progress of all parts when something was wrong."""

    @property
    def name(self) -> str:
        return f"{self.bank.name}-{self.lap.number}"

    @property
    def broker(self) -> Underneath:
        return self.bank.broker

    @property
    def account(self) -> Account:
        return self.bank.account

    @property
    def orders(self) -> str:
        return f"{self.name}-orders"

    @property
    def accounts(self) -> str:
        return f"{self.name}-accounts"

    @books.default
    def _books(self) -> Books:
        return Books(ORDER_PARTITIONS, complaints=self.lap.complaints)

    @tellers.default
    def _tellers(self) -> Tellers:
        posts = [
            Post(
                self.broker.bootstrap,
                transactional_id=f"{self.name}-{number}",
                timeout_ms=TIMEOUT_MS,
                group=self.name,
                orders=self.orders,
                order_partitions=list(range(number, ORDER_PARTITIONS, TELLERS)),
                accounts=self.accounts,
                partitions=PARTITIONS,
                seed=0,
            )
            for number in range(TELLERS)
        ]
        return Tellers(posts, self.bank.folder / f"{self.name}-tellers.log", self.lap.chance, self.books.complain)

    def run(self) -> None:
        bootstrap, account, before = self.broker.bootstrap, self.account, self.account.orders
        topics.create(bootstrap, self.orders, partitions=ORDER_PARTITIONS)
        topics.create(bootstrap, self.accounts, partitions=PARTITIONS, config=FLUSHED if self.lap.number % 2 else {})
        try:
            with auditing(bootstrap, self.accounts, PARTITIONS, self.books) as self._auditor:
                self._book_more(by_all=self.lap.chance.random() < 0.5)
                for way in self.lap.kills(self.lap.each_equally(tuple(self.bank.ways))):
                    self.bank.ways[way](self)
                    self._book_more(by_all=self.lap.chance.random() < 0.5)
                    account.orders = before + self.books.done
                self._book_more(by_all=True)
                # With orders: one that was frozen before it had an epoch fences its heir, and is fenced by the next.
                while self.tellers.zombies:
                    self._book_more(by_all=True)
                self._book_more(by_all=False)
                self._come_to_rest()
                self._finish()
        finally:
            self.tellers.kill_all()
        account.orders = before + self.books.done
        account.left += self.tellers.left
        account.stuck += self.tellers.stuck
        account.fenced += self.tellers.fenced
        account.longest_wait_s = max(account.longest_wait_s, self.books.longest_wait_s)
        for topic in (self.orders, self.accounts):
            topics.delete(bootstrap, topic)

    # -- work

    def _book_more(self, *, by_all: bool) -> None:
        """Writes orders, and waits until some more are booked or, `by_all`, some by each teller."""
        count = self.lap.chance.randrange(*self.bank.orders_at_once)
        self._write_orders(count)
        self.tellers.wake()
        before, done = self.books.booked.copy(), self.books.done
        more = self.lap.chance.randrange(1, min(count // 2, 40))  # the others are at work when the next kill comes

        def are_booked() -> bool:
            booked = self.books.booked
            return self.books.done >= done + more and (
                not by_all or all(booked[partition] > before[partition] for partition in range(ORDER_PARTITIONS))
            )

        self._until(are_booked, f"{more} more orders are booked{' by all tellers' if by_all else ''}")

    def _write_orders(self, count: int) -> None:
        """Before the next kill, so that each is there, once, and in its place."""
        acknowledgements, first, chance = Acknowledgements(), len(self.books.orders), self.lap.chance
        with producing(self.broker.bootstrap, **{"enable.idempotence": True, **RECONNECT}) as producer:
            for number in range(first, first + count):
                payer, payee = (
                    partition + PARTITIONS * chance.randrange(ACCOUNTS_IN_PARTITION)
                    for partition in chance.sample(range(PARTITIONS), 2)
                )
                order = Order(number, payer, payee, chance.randrange(1, 1_000))
                self.books.order(order)
                partition = number % ORDER_PARTITIONS
                producer.produce(self.orders, order.value(), partition=partition, on_delivery=acknowledgements)
        assert not acknowledgements.errors, acknowledgements.errors
        found = {((it.offset() or 0) * ORDER_PARTITIONS + (it.partition() or 0)) for it in acknowledgements.taken}
        assert found == set(range(first, first + count)), "an order is not in its place"
        self.books.restart_waits(time.monotonic())

    def _until(
        self, so: Callable[[], bool], what: str, *, with_tellers: bool = True, within_s: float = PROGRESS_WITHIN_S
    ) -> None:
        """Waits, and meanwhile reads the bookings and, if `with_tellers`, restarts tellers that have ended."""

        def probe() -> bool:
            self.bank.maintain()
            if with_tellers:
                self.tellers.maintain()
            self._auditor.read()
            self.books.check_waits(time.monotonic(), self.bank.ends_within_s)
            self.tellers.check_zombies(PROGRESS_WITHIN_S)
            self.lap.complaints.check()
            return so()

        try:
            eventually(probe, what, within_s=within_s)
        except AssertionError:
            if not self._described:  # the tellers and the auditor end now
                self._described = f"the auditor is at {self._auditor.positions}{self._describe()}"
            raise

    # -- ways to kill; the moment is what is tried

    def a_teller(self) -> None:
        self.pause()
        self.tellers.kill()

    def a_teller_that_is_not_dead(self) -> None:
        self.pause()
        self.tellers.freeze()

    def the_broker(self) -> None:
        self.pause()
        self.broker.kill()
        self.start()

    def the_broker_twice(self) -> None:
        """Kills the broker, and again while it recovers."""
        self.pause()
        self.broker.kill()
        self.broker.begin_start()
        time.sleep(self.lap.chance.random() * START_TAKES_S)
        self.broker.kill()
        self.start()

    def both(self) -> None:
        self.pause()
        kills = [self.tellers.kill, self.broker.kill]
        for kill in self.lap.chance.sample(kills, 2):
            kill()
        self.start()

    def start(self) -> None:
        """Returns when the broker can end transactions, from which time on they must end in time.

        The load of all transactions since the last compaction takes longer with every lap.
        """
        self.broker.start()
        started_s = time.monotonic()
        bootstrap = self.broker.bootstrap
        eventually(
            lambda: not are_coordinators_loading(bootstrap), "coordinators have loaded", within_s=PROGRESS_WITHIN_S
        )
        now_s = time.monotonic()
        self.account.longest_load_s = max(self.account.longest_load_s, now_s - started_s)
        self.books.restart_waits(now_s)

    def pause(self, longest_s: float = _PAUSES_FOR_S) -> None:
        time.sleep(self.lap.chance.random() * longest_s)

    # -- the end

    def _come_to_rest(self) -> None:
        """Kills all tellers for good. The broker ends their open transactions when these time out."""
        self.lap.now = "all tellers, in the end"
        self._until(self._held_in_the_act, "a transaction is open")
        self.tellers.kill_all()
        if self.lap.chance.random() < 0.5:
            self.the_broker()
        since_s = time.monotonic()
        self._rest()
        self.account.longest_rest_s = max(self.account.longest_rest_s, time.monotonic() - since_s)
        self._audit()

    def _held_in_the_act(self) -> bool:
        self.tellers.hold_all()
        left_open = len(open_transactions(self.broker.bootstrap))
        self.account.left_open += left_open
        if not left_open:
            self.tellers.let_go()
        return left_open > 0

    def _finish(self) -> None:
        """Lets new tellers book the remaining orders, without further kills."""
        self.lap.now = "after the last kill"
        books = self.books
        self._until(lambda: books.done == len(books.orders), "every order is booked")
        self.tellers.kill_all()
        self._rest()
        self._audit().check_the_end()
        books.check_the_end()
        self.lap.complaints.check()

    def _rest(self) -> None:
        """Waits until no transaction is open, for its coordinator as in each partition, and no offset in doubt."""
        bootstrap = self.broker.bootstrap

        def rests() -> bool:
            return (
                not open_transactions(bootstrap)
                and all(is_stable(bootstrap, (self.accounts, number)) for number in range(PARTITIONS))
                and None not in self._offsets()
            )

        self._until(rests, "all transactions are over", with_tellers=False, within_s=self.bank.ends_within_s)

    def _offsets(self) -> list[int | None]:
        bootstrap, group = self.broker.bootstrap, self.name
        return [group_offset(bootstrap, group, (self.orders, partition)) for partition in range(ORDER_PARTITIONS)]

    def _audit(self) -> Books:
        """Checks the books of a new auditor, which reads from the start, and of the one that read during the kills."""
        offsets = [offset for offset in self._offsets() if offset is not None]
        fresh = Books(ORDER_PARTITIONS, orders=self.books.orders, complaints=self.books.complaints)
        with auditing(self.broker.bootstrap, self.accounts, PARTITIONS, fresh) as auditor:

            def all_is_read() -> bool:
                auditor.read()
                return not auditor.unread

            eventually(all_is_read, "all is read")
        fresh.check_at_rest(offsets)
        self._until(lambda: self.books.done >= fresh.done, "the other auditor has read all", with_tellers=False)
        self.books.check_at_rest(offsets)
        self.lap.complaints.check()
        return fresh

    def state(self) -> str:
        """Returns the progress of all parts, for a message."""
        return self._described or self._describe()

    def _describe(self) -> str:
        bootstrap = self.broker.bootstrap
        accounts = [(self.accounts, number) for number in range(PARTITIONS)]
        tellers = self.tellers.log_file
        printed = tellers.read_text(errors="replace") if tellers.exists() else ""
        try:
            stable = [end_offset(bootstrap, spot, committed=True) for spot in accounts]
            ends = [end_offset(bootstrap, spot, committed=False) for spot in accounts]
            ids = [post.transactional_id for post in self.tellers.posts]
            lines = [
                f"at {time.time() * 1000:.0f} the accounts are stable up to {stable} of {ends}; "
                f"open are {open_transactions(bootstrap)}",
                *(f"in {spot}: {it}" for spot in accounts for it in open_producers(bootstrap, spot)),
                *described_transactions(bootstrap, ids),
                f"the tellers are at {self._offsets()}; booked are {sorted(self.books.booked.items())} of "
                f"{len(self.books.orders)} orders",
            ]
        except (AssertionError, OSError, ConnectionClosed) as problem:
            lines = [f"the broker does not answer: {problem!r}"]
        log = self.broker.log_file.read_text(errors="replace")
        return "\n".join(["", *lines, "The tellers said:", printed[-2000:], "The broker said:", log[-4000:]])


WAYS: dict[str, Callable[[Day], None]] = {
    "a teller": Day.a_teller,
    "a teller that is not dead": Day.a_teller_that_is_not_dead,
    "the broker": Day.the_broker,
    "the broker twice": Day.the_broker_twice,
    "both": Day.both,
}
