"""Deliberate mistakes in a share partition. Each is found by a world of one of the first seeds."""

from __future__ import annotations

from typing import Any

from kwire_protocol.errors import ErrorCode

from kwire.share.leader.states import ACQUIRED, ARCHIVED, AVAILABLE, AcquireMode
from testkit.mutants.changes import Change, Function, always, instead, without

PARTITION = "kwire.share.leader.share_partition:SharePartition"
IN_FLIGHT = "kwire.share.leader.in_flight:InFlight"
BATCH = "kwire.share.leader.in_flight:InFlightBatch"
RUN = "kwire.share.leader.in_flight:Run"
ACQUIRING = "kwire.share.leader.acquiring:Acquiring"
LIMITS = "kwire.share.leader.states:ShareLimits"


def whoever_holds_it(plan: Function) -> Function:
    def mistaken(partition: Any, steps: Any, member: str, batches: Any) -> Any:
        for holder in (member, *partition._locks):
            steps.clear()
            error = plan(partition, steps, holder, batches)
            if error is ErrorCode.NONE:
                break
        return error

    return mistaken


def what_is_valid(plan: Function) -> Function:
    """Up to the first batch that is not."""

    def mistaken(partition: Any, steps: Any, member: str, batches: Any) -> Any:
        error = plan(partition, steps, member, batches)
        return ErrorCode.NONE if steps else error

    return mistaken


def as_if_written(complete: Function) -> Function:
    def mistaken(partition: Any, run: Any, again: Any, *, is_written: bool, now_ms: int) -> None:
        complete(partition, run, again, is_written=True, now_ms=now_ms)

    return mistaken


def with_letters(sent: Function) -> Function:
    """They go to the dead-letter topic before it is known that they are dead."""
    return lambda partition, write: [*sent(partition, write), *write.letters]


def as_if_all_were_done(sent: Function) -> Function:
    """The start offset of a write is what it will be when it is written."""

    def mistaken(partition: Any, write: Any) -> Any:
        effects = sent(partition, write)
        if effects and write.batches[0].first_offset == write.start_offset:
            write.start_offset = write.batches[0].last_offset + 1
        return effects

    return mistaken


def without_its_letters(initialize: Function) -> Function:
    def mistaken(partition: Any, persisted: Any) -> Any:
        initialize(partition, persisted)
        return []

    return mistaken


def without_gaps(insert: Function) -> Function:
    return lambda in_flight, batch: None if batch.is_unfetched else insert(in_flight, batch)


def uncounted(_take: Function) -> Function:
    def mistaken(acquiring: Any, run: Any) -> None:
        run.state = ACQUIRED
        run.lock = acquiring.lock
        acquiring.lock.take(run.first, run.last)

    return mistaken


def of_the_first_lock(release: Function) -> Function:
    def mistaken(partition: Any, token: Any, member: str) -> Any:
        locks = partition._locks.get(member, {})
        others = [it for it in list(locks)[1:] if locks.pop(it, it) is None]
        effects = release(partition, token, member)
        locks.update(dict.fromkeys(others))
        return effects

    return mistaken


def without_counting(_change: Function) -> Function:
    def mistaken(_in_flight: Any, run: Any, state: Any) -> None:
        run.state = state

    return mistaken


MISTAKES: dict[str, Change] = {
    "anybody may acknowledge": instead(f"{PARTITION}._plan", whoever_holds_it),
    "an acknowledgement takes effect up to what is wrong": instead(f"{PARTITION}._plan", what_is_valid),
    "a write that failed counts": instead(f"{PARTITION}._complete", as_if_written),
    "a lock that timed out during a write that failed stays": without(
        f"{PARTITION}._complete", f"{PARTITION}._come_back"
    ),
    "a lock does not time out": without(f"{PARTITION}.expire", f"{PARTITION}._time_out"),
    "a renewed lock does not time out": without(f"{PARTITION}.acknowledge", f"{PARTITION}._hold"),
    "the start offset passes what is being written": instead(
        f"{RUN}.write", always(None), seen_by=f"{IN_FLIGHT}.advance"
    ),
    "the start offset is persisted before what it passes": instead(f"{PARTITION}._sent", as_if_all_were_done),
    "a record is acquired while its release is written": instead(
        f"{RUN}.may_be_acquired", lambda _: lambda run: run.state is AVAILABLE and run.ready_ms == 0
    ),
    "a record is acquired while it is kept": instead(
        f"{RUN}.may_be_acquired", lambda _: lambda run: run.state is AVAILABLE and run.write is None
    ),
    "a record that is kept never comes back": instead(f"{PARTITION}._end_delay", always(False)),
    "a rejected record is archived and not copied": instead(f"{PARTITION}._failed", always(ARCHIVED)),
    "a record is copied before that is persisted": instead(f"{PARTITION}._sent", with_letters),
    "a restart forgets what is to be copied": instead(f"{PARTITION}.initialize", without_its_letters),
    "a restart forgets what was in flight": instead(
        f"{IN_FLIGHT}.insert", without_gaps, seen_by=f"{PARTITION}.initialize"
    ),
    "a delivery is not counted": instead(f"{ACQUIRING}._take", uncounted),
    "a release counts as no delivery": instead(f"{PARTITION}._released", always(AVAILABLE)),
    "a member that leaves keeps some": instead(f"{PARTITION}.release", of_the_first_lock),
    "what the log has lost stays": instead(f"{IN_FLIGHT}.move_start", always(())),
    "what compaction took is waited for": without(f"{ACQUIRING}.run", f"{ACQUIRING}._archive_lost"),
    "what was aborted is delivered": without(f"{ACQUIRING}.run", f"{ACQUIRING}._archive_unwanted"),
    "records that do harm are not isolated": instead(f"{LIMITS}.throttled_from", always(100)),
    "a last delivery is not alone": instead(f"{LIMITS}.is_last_delivery", always(False)),
    "the record limit is not exact": instead(f"{ACQUIRING}.mode", always(AcquireMode.BATCH_OPTIMIZED)),
    "more is in flight than may be": instead(
        f"{LIMITS}.max_in_flight_records", always(10**6), seen_by=f"{ACQUIRING}.run"
    ),
    "a share partition is used without being the current one": instead(
        "kwire.share.leader.share_partition:_ENDING", lambda _: frozenset()
    ),
    "what is done is not counted": instead(f"{IN_FLIGHT}.change", without_counting),
    "neighbours in equal state stay apart": instead(f"{BATCH}.join", always(None)),
}
