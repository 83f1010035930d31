"""The same steps to our share partition and to Apache Kafka's own: they acquire, answer, write and keep the same.

The worlds are tidy: their logs have no holes and are not compacted or trimmed, what is acknowledged is held, no renewal
is part of a request that fails, and there are no restarts. `share_partition.py` has the differences outside of that.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import attrs
import pytest
from kwire_protocol.errors import ErrorCode

from devtools.jars import classpath, compile_java
from devtools.java import java, java_environment
from devtools.suite.tiers import examples
from kwire.share.leader.acknowledgements import AcknowledgementBatch
from kwire.share.leader.acquiring import AcquiredRange, Fetched
from kwire.share.leader.effects import Acknowledged, Effect, Token, Write
from kwire.share.leader.share_partition import PersistedState, SharePartition
from kwire.share.leader.states import ACQUIRED, AcquireMode, ShareLimits
from testkit.java.java_host import JARS, LOGGING, OPTIONS
from testkit.share.leader.world import Seeded, World

ERRORS = {
    "None": ErrorCode.NONE,
    "InvalidRecordStateException": ErrorCode.INVALID_RECORD_STATE,
    "InvalidRequestException": ErrorCode.INVALID_REQUEST,
    "CoordinatorNotAvailableException": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "UnknownServerException": ErrorCode.UNKNOWN_SERVER_ERROR,
}

LIMITS = (
    ShareLimits(20, 5, 100),
    ShareLimits(12, 2, 100),
    ShareLimits(30, 4, 50),
    ShareLimits(30, 6, 80),
    ShareLimits(8, 3, 100),
    ShareLimits(30, 10, 100),
)

STEPS = (
    *[World.fetch] * 16,
    *[World.acknowledge] * 14,
    *[World.acknowledge_each] * 4,
    *[World.release] * 2,
    *[World.wait] * 6,
    *[World.persist] * 10,
    *[World.hear] * 8,
    *[World.append] * 6,
)


@attrs.define
class Judge:
    """Kafka's share partition, in a Java process."""

    to: IO[str]
    of: IO[str]

    def call(self, *words: object) -> list[str]:
        self.to.write(" ".join(map(str, words)) + "\n")
        self.to.flush()
        answer = self.of.readline().split()
        assert answer, "the Java process ended"
        assert answer[0] != "broken", answer
        return answer


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    jars = classpath(JARS)
    classes = compile_java(Path(__file__).with_name("Judge.java"), jars)
    environment = java_environment() | {"CLASSPATH": os.pathsep.join([str(classes), jars])}
    command = [str(java()), *OPTIONS, f"-Dlog4j2.configurationFile={LOGGING}", "kafka.server.share.Judge"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Judge(process.stdin, process.stdout)
        process.stdin.close()


class TimedOutTwice(Exception):
    """A write failed after its lock had timed out. From here on we write more than Kafka does."""


class JudgedPartition(SharePartition):
    """Our share partition; every step is also done to Kafka's."""

    def __init__(self, limits: ShareLimits, judge: Judge) -> None:
        super().__init__(3, limits)
        self.judge = judge
        self.kafkas: dict[Write, list[int]] = {}
        """The same writes of Kafka: it has one for each time-out."""

    def initialize(self, persisted: PersistedState) -> list[Effect]:
        effects = super().initialize(persisted)
        numbers = [int(it) for batch in persisted.batches for it in batch]
        limits = (self.limits.max_in_flight_records, self.limits.delivery_count_limit, self.limits.lock_duration_ms)
        begun = self.judge.call("begin", persisted.start_offset, *limits, len(persisted.batches), *numbers)
        assert begun == ["None"]
        self.compare()
        return effects

    def acquire(
        self,
        member: str,
        fetched: Fetched,
        *,
        max_records: int,
        batch_size: int,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        now_ms: int,
    ) -> list[AcquiredRange]:
        acquired = super().acquire(
            member, fetched, max_records=max_records, batch_size=batch_size, mode=mode, now_ms=now_ms
        )
        self.judge.call("now", now_ms)
        numbers = [it for batch in fetched.batches for it in batch]
        how = (int(mode), batch_size, max_records, fetched.fetch_offset, len(fetched.batches))
        theirs = self.judge.call("acquire", member, *how, *numbers)
        assert [":".join(map(str, it)) for it in acquired] == theirs[1:]
        self.compare()
        return acquired

    def acknowledge(
        self,
        token: Token,
        member: str,
        batches: Sequence[AcknowledgementBatch],
        *,
        may_renew: bool = False,
        now_ms: int,
    ) -> list[Effect]:
        effects = super().acknowledge(token, member, batches, may_renew=may_renew, now_ms=now_ms)
        self.judge.call("now", now_ms)
        numbers = [n for it in batches for n in (it.first_offset, it.last_offset, len(it.types), *it.types)]
        self.compare_reply(effects, self.judge.call("acknowledge", member, len(batches), *numbers))
        return effects

    def release(self, token: Token, member: str) -> list[Effect]:
        effects = super().release(token, member)
        self.compare_reply(effects, self.judge.call("release", member))
        return effects

    def expire(self, *, now_ms: int) -> list[Effect]:
        effects = super().expire(now_ms=now_ms)
        self.judge.call("now", now_ms)
        _, *theirs = self.judge.call("expire")
        writes = [it for it in effects if isinstance(it, Write)]
        assert len(writes) == (1 if theirs else 0)
        for write in writes:
            self.compare_write(write, theirs)
        self.compare()
        return effects

    def written(self, write: Write, error: ErrorCode, *, now_ms: int) -> list[Effect]:
        effects = super().written(write, error, now_ms=now_ms)
        self.judge.call("now", now_ms)
        for number in self.kafkas.pop(write):
            (theirs,) = self.judge.call("answer", number, int(error))
            answers = [it.error for it in effects if isinstance(it, Acknowledged)]
            assert answers == ([ERRORS[theirs]] if write.token is not None else [])
        self.compare()
        if any(isinstance(it, Write) for it in effects):
            raise TimedOutTwice
        return effects

    def compare_reply(self, effects: Sequence[Effect], theirs: list[str]) -> None:
        (effect,) = effects
        if isinstance(effect, Write):
            assert theirs[0] == "pending"
            self.compare_write(effect, theirs[1:])
        else:
            assert isinstance(effect, Acknowledged)
            assert effect.error is ERRORS[theirs[0]]
        self.compare()

    def compare_write(self, write: Write, theirs: list[str]) -> None:
        numbers = []
        kafka_states = {}
        for each in theirs:
            number, start_offset, complete_count, *batches = each.split(",")
            numbers.append(int(number))
            for first, last, state, count in (map(int, batch.split(":")) for batch in batches):
                kafka_states.update(dict.fromkeys(range(first, last + 1), (state, count)))
            assert write.start_offset == int(start_offset)
        assert write.delivery_complete_count == int(complete_count)
        assert kafka_states == {
            offset: (int(state), count)
            for first, last, state, count in write.batches
            for offset in range(first, last + 1)
        }
        self.kafkas[write] = numbers

    def compare(self) -> None:
        start, end, complete, next_fetch, can_acquire, *records = self.judge.call("state")
        assert (self.start_offset, self.end_offset) == (int(start), int(end))
        assert self.delivery_complete_count == int(complete)
        assert self.next_fetch_offset == int(next_fetch)
        assert self.can_acquire() == (can_acquire == "1")
        theirs = {}
        for each in records:
            offset, state, count, member, is_pending = each.split(":")
            theirs[int(offset)] = (int(state), int(count), member, is_pending == "true")
        assert theirs == {
            offset: (
                int(run.state),
                # Neighbours that are done are one run, whatever their delivery counts were.
                theirs[offset][1] if run.is_done and run.write is None else run.delivery_count,
                run.lock.member if run.lock is not None and run.state is ACQUIRED else "",
                run.write is not None,
            )
            for batch in self.in_flight.batches
            for run in batch.runs
            for offset in range(run.first, run.last + 1)
        }


@pytest.mark.more
def test_it_does_what_kafka_does(judge: Judge) -> None:
    for seed in range(examples(50)):
        world = World(
            Seeded(random.Random(seed)),
            limits=LIMITS,
            make=lambda limits: JudgedPartition(limits, judge),
            is_tidy=True,
        )
        try:
            for _ in range(120):
                world.of(STEPS)(world)
        except TimedOutTwice:
            pass
