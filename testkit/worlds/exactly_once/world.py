"""The promises of a broker to its clients, which must hold after any event."""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode

from kwire.coordinators.deadlines import PAUSES_MS
from testkit.scenes.direct import clients
from testkit.scenes.direct.broker_driver import TopicPartition
from testkit.scenes.direct.clients import TIMEOUT_MS, Identity
from testkit.scenes.direct.reading import WHOLE, committed_offsets, fetch, read_all
from testkit.worlds.exactly_once.model import Log, Work
from testkit.worlds.exactly_once.scene import OFFSETS, PARTITIONS, STATE, WATCHED, Scene

IDS = ("one", "two", "three")
GROUPS = ("g", "h")
NEVER = -(10**15)


class World:
    """A broker, and what is known of it from the outside."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.logs = {tp: Log(tp) for tp in WATCHED}
        self.work: dict[str, Work] = {}
        """The transaction of each id that is open."""
        self.last_outcome: dict[str, bool] = {}
        self.current: dict[str, Identity] = {}
        """The producer that may use an id. After fencing there is none until a producer gets the new epoch."""
        self._healthy_ms = dict.fromkeys((*WATCHED, STATE), NEVER)
        """The times since which appends to a partition have not failed."""
        self._seen: dict[TopicPartition, object] = {}
        """The state of each partition at its last check."""

    def state(self, transactional_id: str) -> str:
        described = clients.describe(self.scene, transactional_id)
        return described.transaction_state or ErrorCode(described.error_code).name

    def is_healthy(self, *partitions: TopicPartition) -> bool:
        return not self.scene.failing.intersection(partitions)

    def may_begin(self, transactional_id: str, identity: Identity) -> bool:
        """True if the producer may begin a transaction, or continue it."""
        if self.current.get(transactional_id) != identity:
            return False
        return not self.state(transactional_id).startswith("Prepare")

    def is_overdue(self, transactional_id: str) -> bool:
        """Its transaction has had its time: as soon as the disk lets the coordinator, it is aborted."""
        work = self.work.get(transactional_id)
        return work is not None and work.began_ms + TIMEOUT_MS <= self.scene.now_ms

    def fence(self, transactional_id: str) -> None:
        """The open transaction is aborted, and its producer has lost its epoch."""
        self.decide(transactional_id, committed=False)
        self.current.pop(transactional_id, None)

    def decide(self, transactional_id: str, *, committed: bool) -> None:
        work = self.work.pop(transactional_id, None)
        if work is not None:
            work.outcome = committed
        self.last_outcome[transactional_id] = committed

    def joined(self, transactional_id: str, identity: Identity, *added: TopicPartition) -> Work:
        """The partitions are part of the producer's transaction."""
        assert self.current.get(transactional_id) == identity, "a fenced producer adds nothing"
        work = self.work.setdefault(transactional_id, Work(transactional_id, self.scene.now_ms))
        work.added.update(added)
        return work

    def joined_on_the_way(self, transactional_id: str, identity: Identity) -> None:
        """Adds partitions that a request has added by itself; they stay added, even if its records failed."""
        described = clients.describe(self.scene, transactional_id)
        if described.transaction_state == "Ongoing":
            added = [(topic.topic, index) for topic in described.topics for index in topic.partitions]
            self.joined(transactional_id, identity, *added)

    def restart(self, *, clean: bool) -> None:
        self.scene.restart(clean=clean)
        self._seen.clear()

    def compact(self, *partitions: TopicPartition) -> None:
        for tp in partitions:
            self.scene.roll(tp)
            if tp in self.logs:
                self.logs[tp].is_cleaned = True
                self._seen.pop(tp, None)
        self.scene.clean()

    def set_failing(self, failing: set[TopicPartition]) -> None:
        for tp in self.scene.failing - failing:
            self._healthy_ms[tp] = self.scene.now_ms
        self.scene.failing = failing

    # -- what holds, always

    def follow(self) -> None:
        """Takes in what is over by now, and what has happened in the partitions."""
        self._follow_ends()
        for log in self.logs.values():
            partition = self.scene.partition(log.tp)
            now = (partition.log_start_offset, partition.last_stable_offset, partition.log_end_offset)
            if self._seen.get(log.tp) != now:
                self._seen[log.tp] = now
                self.check_log(log)

    def _follow_ends(self) -> None:
        for name in list(self.work):
            if self.state(name) != "Ongoing":
                assert self.is_overdue(name), f"{name}'s transaction is over too early"
                self.fence(name)

    def catch_up(self, log: Log) -> None:
        """Takes in the markers for which the request waited whose batch is the last one now."""
        self._follow_ends()
        start = self.scene.partition(log.tp).log_start_offset
        batches = [batch for it in read_all(self.scene, log.tp, start, committed=False) for batch in it.batches]
        log.follow(batches[:-1])

    def check_log(self, log: Log) -> None:
        scene, tp = self.scene, log.tp
        start = scene.partition(tp).log_start_offset
        if start < log.log_start_offset:
            log.last_stable_offset = start  # a start from older checkpoints
        log.has_lost = log.has_lost or start > 0
        log.log_start_offset = start
        batches = [batch for fetched in read_all(scene, tp, start, committed=False) for batch in fetched.batches]
        log.follow(batches)
        log.check_all(batches, start)
        log.check_stable(fetch(scene, tp, start, committed=True))
        if tp != OFFSETS:
            offset = start
            for fetched in read_all(scene, tp, start, committed=True, max_bytes=300):
                log.check_committed(fetched, offset)
                assert fetched.end is not None
                offset = fetched.end
            assert offset == log.last_stable_offset, f"{tp}: readers are stuck at {offset}"

    def check(self) -> None:
        self.follow()
        self.check_offsets()
        self.check_markers()
        self.check_coordinator()

    def check_offsets(self) -> None:
        """They count if and only if their transaction does."""
        for stable in (False, True):
            offsets = self.logs[OFFSETS].group_offsets(stable=stable)
            for group in GROUPS:
                wanted = {tp: offsets.get((group, tp), -1) for tp in PARTITIONS}
                assert committed_offsets(self.scene, group, PARTITIONS, stable=stable) == wanted, f"{group}, {stable}"

    def check_markers(self) -> None:
        """Checks that markers are written: at once, or when the disk accepts them again and the next retry is due."""
        for log in self.logs.values():
            has_rest = self._healthy_ms[log.tp] + PAUSES_MS.longest < self.scene.now_ms
            if self.is_healthy(log.tp) and has_rest:
                for piece in log.open.values():
                    assert piece.outcome is None, f"{log.tp}: no marker for what began at {piece.first_offset}"

    def check_coordinator(self) -> None:
        """Checks that the coordinator has the open transactions, and ends them."""
        for name in IDS:
            state = self.state(name)
            assert (state == "Ongoing") == (name in self.work), f"{name} is {state}"
            if state == "TRANSACTIONAL_ID_NOT_FOUND":
                self.current.pop(name, None)
        if all(
            self.is_healthy(tp) and at + PAUSES_MS.longest < self.scene.now_ms for tp, at in self._healthy_ms.items()
        ):
            assert not any(map(self.is_overdue, self.work)), "a transaction is not timed out"
            assert not any(self.state(name).startswith("Prepare") for name in IDS)

    def read_from_everywhere(self) -> None:
        for tp in PARTITIONS:
            log = self.logs[tp]
            for offset in range(log.log_start_offset, log.end_offset + 1):
                for max_bytes in (1, 300, WHOLE):
                    log.check_committed(fetch(self.scene, tp, offset, committed=True, max_bytes=max_bytes), offset)
