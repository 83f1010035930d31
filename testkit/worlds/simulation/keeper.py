"""The service under a cluster, such as ZooKeeper: an ordered log, and sessions.

A node sends its requests over the network of the simulation. They may be late; while the connection is cut, they wait,
as in a client of ZooKeeper that reconnects. They do not wait longer than the session lasts.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar

import attrs
import trio
from outcome import Error, Outcome, capture

from kwire.cluster.membership import NO_CONTROLLER, MembershipEnded, NodeIdTakenError
from kwire.metadata.log import AppendConflict, LogTruncated, Watcher
from kwire.metadata.log_batches import ReadRecords
from kwire.metadata.snapshots import Snapshot
from kwire.runtime.futures import Future
from kwire.runtime.loop import Loop
from testkit.worlds.simulation.calendar import Calendar
from testkit.worlds.simulation.network import Host, Network

T = TypeVar("T")

SESSION_TIMEOUT_S: Final = 1.0
NAME: Final = "keeper"
MOST_READ: Final = 50
"""Records at once."""


def _ignore() -> None: ...


def _unseen(_values: Sequence[bytes]) -> None: ...


class SessionOver(OSError):
    def __init__(self) -> None:
        super().__init__(errno.EIO, "the session is over")


@attrs.define(eq=False)
class Keeper:
    """`values` begin at `start_offset`; `snapshot` has what was before."""

    calendar: Calendar
    network: Network
    cluster_id: str
    refuses: bool = False
    """Appends fail, and nothing is appended."""
    values: list[bytes] = attrs.field(factory=list)
    start_offset: int = 0
    ends: list[int] = attrs.field(factory=list)
    """The end offset of each append."""
    snapshot: Snapshot | None = None
    members: dict[int, SimMembership] = attrs.field(factory=dict)
    """The members by node id, in the order in which their sessions began. The first one is the controller."""
    heard_at: dict[int, float] = attrs.field(factory=dict)
    on_append: Callable[[Sequence[bytes]], None] = _unseen

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.values)

    @property
    def controller_id(self) -> int:
        return next(iter(self.members), NO_CONTROLLER)

    # The log

    def append(self, values: Sequence[bytes], expected_end_offset: int) -> int:
        if self.refuses:
            raise OSError(errno.EACCES, "the keeper refuses")
        if self.end_offset == expected_end_offset:
            self.values += values
            self.ends.append(self.end_offset)
            self.on_append(values)
            self._notify_all()
            return self.end_offset
        raise AppendConflict(f"the metadata log ends at {self.end_offset}, not at {expected_end_offset}")

    def read(self, offset: int) -> ReadRecords:
        if offset < self.start_offset:
            raise LogTruncated(f"the metadata log begins at {self.start_offset}, after {offset}")
        end = offset
        for it in self.ends:
            if it > offset and (end == offset or it <= offset + MOST_READ):
                end = it
        found = [(it, self.values[it - self.start_offset]) for it in range(offset, end)]
        return ReadRecords(found, end, sum(len(value) for _, value in found))

    def write_snapshot(self, values: Sequence[bytes], end_offset: int) -> None:
        if self.snapshot is None or self.snapshot.end_offset < end_offset:
            self.snapshot = Snapshot(end_offset, list(values))
            del self.values[: end_offset - self.start_offset]
            self.start_offset = end_offset
            self.ends = [it for it in self.ends if it > end_offset]

    # Sessions

    def begin(self, member: SimMembership) -> None:
        if member.node_id in self.members:
            raise NodeIdTakenError(f"node {member.node_id} has a session already")
        self.members[member.node_id] = member
        self.heard(member)
        self._notify_all()

    def heard(self, member: SimMembership) -> None:
        at = self.heard_at[member.node_id] = self.calendar.now

        def expire_if_silent() -> None:
            if self.members.get(member.node_id) is member and self.heard_at[member.node_id] == at:
                self.end(member)

        self.calendar.after(SESSION_TIMEOUT_S, expire_if_silent)

    def end(self, member: SimMembership) -> None:
        if self.members.get(member.node_id) is member:
            del self.members[member.node_id]
            self._notify_all()

    def has_session(self, member: SimMembership) -> bool:
        return self.members.get(member.node_id) is member

    def _notify_all(self) -> None:
        for member in list(self.members.values()):
            self.notify(member)

    def notify(self, member: SimMembership) -> None:
        """News travel as they are when they leave."""
        news = self.end_offset, self.controller_id, frozenset(self.members)
        member.seen += 1
        number = member.seen
        there, here = self.network.host(NAME), member.host
        self.calendar.after(
            self.network.delay_s(there, here),
            lambda: self.network.when_open(NAME, here.name, lambda: member.heard(number, *news)),
        )


@attrs.define(eq=False)
class SimMembership:
    """A node's session; its `Membership`."""

    keeper: Keeper
    node_id: int
    host: Host
    loop: Loop
    in_process: Callable[[Callable[[], object]], None]
    log: SimMetadataLog = attrs.field(init=False)
    controller_id: int = NO_CONTROLLER
    seen: int = 0
    """The number of notifications that were sent."""
    is_over: bool = False
    _heard: int = 0
    _alive: frozenset[int] = frozenset()
    _on_change: Callable[[], None] = _ignore
    _open: dict[Callable[[Outcome[Any]], None], None] = attrs.field(factory=dict)
    """The callbacks that wait for answers."""
    _ended: trio.Event = attrs.field(factory=trio.Event)
    _lasts_until: float = 0.0

    @classmethod
    def join(
        cls,
        keeper: Keeper,
        node_id: int,
        host: Host,
        loop: Loop,
        in_process: Callable[[Callable[[], object]], None],
    ) -> SimMembership:
        """Raises OSError, NodeIdTakenError."""
        if any(keeper.network.is_cut(*way) for way in ((NAME, host.name), (host.name, NAME))):
            raise OSError(errno.ETIMEDOUT, "the keeper is out of reach")
        member = cls(keeper, node_id, host, loop, in_process)
        member.log = SimMetadataLog(member, keeper.end_offset)
        keeper.begin(member)
        member.controller_id, member._alive = keeper.controller_id, frozenset(keeper.members)
        member._lasts_until = keeper.calendar.now + SESSION_TIMEOUT_S
        return member

    # Membership

    @property
    def cluster_id(self) -> str:
        return self.keeper.cluster_id

    def is_alive(self, node_id: int) -> bool:
        return node_id in self._alive

    def watch(self, node_ids: Collection[int]) -> None:
        """Does nothing: it is notified of every life."""

    async def run(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._beat()
        while not self.is_over and trio.current_time() < self._lasts_until:
            with trio.move_on_at(self._lasts_until):
                await self._ended.wait()
        self._end()
        raise MembershipEnded("the session is over")

    def _beat(self) -> None:
        if self.is_over:
            return
        sent_at = self.keeper.calendar.now
        future = self.call(lambda: self.keeper.heard(self))

        def answered() -> None:
            if not isinstance(future.value, Error):
                self._lasts_until = sent_at + SESSION_TIMEOUT_S
                self.keeper.notify(self)
                self.keeper.calendar.after(SESSION_TIMEOUT_S / 4, lambda: self.in_process(self._beat))

        if future.is_set:  # the server has stopped, and the node is about to leave
            answered()
        else:
            future.when_set(answered)

    def leave(self) -> None:
        self._end()
        self.keeper.end(self)

    def _end(self) -> None:
        """Ends the session in the process: it is dead, or has got the expiry."""
        self.is_over = True
        self._ended.set()
        for answer in list(self._open):
            answer(Error(SessionOver()))

    def die(self) -> None:
        self._end()

    def expire(self) -> None:
        """Ends the session, and notifies the node."""
        self.keeper.end(self)
        self.keeper.calendar.after(0.001, self._end)

    def heard(self, number: int, end_offset: int, controller_id: int, alive: frozenset[int]) -> None:
        if self.is_over or number < self._heard:
            return
        self._heard = number
        changed = (controller_id, alive) != (self.controller_id, self._alive)
        self.controller_id, self._alive = controller_id, alive

        def notify() -> None:
            self.log.ends_at(end_offset)
            if changed:
                self._on_change()

        self.in_process(notify)

    # Calls to the keeper

    def call(self, work: Callable[[], T]) -> Future[Outcome[T]]:
        """It is done when the question has arrived, and answered later. Before the server runs, both at once."""
        future: Future[Outcome[T]] = Future()
        if self.loop.host is None:
            future.set(self._done(work))
            return future
        answered = trio.Event()

        def answer(outcome: Outcome[T]) -> None:
            if not answered.is_set():
                answered.set()
                self._open.pop(answer, None)
                self.in_process(lambda: future.set(outcome))

        async def wait() -> None:
            # A server that stops waits for it, as for a worker thread.
            with trio.CancelScope(shield=True):
                await answered.wait()

        self._open[answer] = None
        self.loop.host.start_soon(wait)
        if self.is_over:
            answer(Error(SessionOver()))
            return future
        here, there = self.host, self.keeper.network.host(NAME)
        self._travel(here, there, lambda: self._answer_later(self._done(work), answer))
        return future

    def _answer_later(self, outcome: Outcome[T], answer: Callable[[Outcome[T]], None]) -> None:
        self._travel(self.keeper.network.host(NAME), self.host, lambda: answer(outcome))

    def _travel(self, source: Host, target: Host, callback: Callable[[], None]) -> None:
        network = self.keeper.network
        self.keeper.calendar.after(
            network.delay_s(source, target), lambda: network.when_open(source.name, target.name, callback)
        )

    def _done(self, work: Callable[[], T]) -> Outcome[T]:
        return capture(work) if self.keeper.has_session(self) else Error(SessionOver())


@attrs.define(eq=False)
class SimMetadataLog:
    """A `MetadataLog`."""

    member: SimMembership
    end_offset: int = 0
    _watchers: list[Watcher] = attrs.field(factory=list)

    async def append(self, values: Sequence[bytes], *, expected_end_offset: int) -> None:
        keeper = self.member.keeper
        try:
            end_offset = (await self.member.call(lambda: keeper.append(values, expected_end_offset))).unwrap()
        except AppendConflict:
            # The news of the other append may still be on its way.
            self.ends_at((await self.member.call(lambda: keeper.end_offset)).unwrap())
            raise
        self.ends_at(end_offset)

    async def read(self, offset: int) -> ReadRecords:
        found = (await self.member.call(lambda: self.member.keeper.read(offset))).unwrap()
        self.ends_at(found.next_offset)
        return found

    async def read_snapshot(self) -> Snapshot | None:
        return (await self.member.call(lambda: self.member.keeper.snapshot)).unwrap()

    async def write_snapshot(self, values: Sequence[bytes], *, end_offset: int) -> None:
        (await self.member.call(lambda: self.member.keeper.write_snapshot(values, end_offset))).unwrap()

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def ends_at(self, end_offset: int) -> None:
        if end_offset > self.end_offset:
            self.end_offset = end_offset
            for watcher in self._watchers:
                watcher()
