"""The machine notices mistakes: each of these breaks what the states of share groups rest on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode

from kwire.share.coordinator.records import Snapshot, Update
from kwire.share.coordinator.state import StateBatch
from testkit.mutants.changes import Change, Function, Mutant, always, instead
from testkit.mutants.lives import Lives
from testkit.share.coordinator.machine import ShareStateMachine

LIVES = Lives(ShareStateMachine, seed=8, examples=500)

BATCHES = "kwire.share.coordinator.batches"
MODULE = "kwire.share.coordinator.shard"
SHARD = f"{MODULE}:ShareStateShard"
COLD = f"{SHARD}._check_cold_states"


def mistake(name: str, change: Change) -> Mutant:
    return Mutant(name, "", change)


def with_ranks(turned: Callable[[StateBatch], StateBatch]) -> Callable[[Function], Function]:
    """Compares what `turned` makes of the batches; it is its own reverse."""
    return lambda swept: lambda batches: [turned(it) for it in swept([turned(it) for it in batches])]


def without_updates_before(applied_to: Function) -> Function:
    def mistaken(update: Any, state: Any) -> Any:
        return applied_to(update, None if state is None else attrs.evolve(state, batches=()))

    return mistaken


def with_the_start_offset_as_it_is(applied_to: Function) -> Function:
    return lambda update, state: attrs.evolve(applied_to(update, state), start_offset=update.start_offset)


def recording(changed: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Writes the record of another change than the one that is applied."""
    return lambda record: lambda change: record(changed(change))


def without_batches(change: Snapshot) -> Snapshot:
    return change if change.state is None else Snapshot(change.key, attrs.evolve(change.state, batches=()))


def without_a_count(change: Update) -> Update:
    return attrs.evolve(change, delivery_complete_count=-1)


def appending(chosen: Callable[[Iterable[Any]], Iterable[Any]]) -> Callable[[Function], Function]:
    return lambda append: lambda shard, step, changes: append(shard, step, chosen(changes))


def without_tombstones(changes: Iterable[Any]) -> list[Any]:
    return [change for change in changes if not (isinstance(change, Snapshot) and change.state is None)]


def as_if_requested(changes: Iterable[Any]) -> list[Any]:
    return [
        Snapshot(change.key, attrs.evolve(change.state, created_ms=change.state.written_ms)) if change.state else change
        for change in changes
    ]


def applied_nevertheless(appended: Function) -> Function:
    return lambda shard, changes, step, _error: appended(shard, changes, step, ErrorCode.NONE)


def one_offset_late(appended: Function) -> Function:
    def mistaken(shard: Any, changes: Any, step: Any, error: Any) -> None:
        step.base_offset += 1
        appended(shard, changes, step, error)

    return mistaken


def the_newest(_: Function) -> Function:
    return lambda shard: max((entry.snapshot_offset for entry in shard._entries.values()), default=None)


def one_more(needed_from: Function) -> Function:
    def mistaken(shard: Any) -> int | None:
        offset = needed_from(shard)
        return None if offset is None else offset + 1

    return mistaken


def of_all_topics(forget: Function) -> Function:
    return lambda shard, _ids, *, now: forget(shard, {key.topic_id for key in shard._entries}, now=now)


def keeping_the_epochs(apply: Function) -> Function:
    def mistaken(shard: Any, change: Any, offset: int) -> None:
        before = shard._entries.get(change.key)
        apply(shard, change, offset)
        entry = shard._entries.get(change.key)
        if entry is not None and before is not None:
            entry.leader_epoch, entry.state_epoch = before.leader_epoch, before.state_epoch

    return mistaken


def never_counting(apply: Function) -> Function:
    def mistaken(shard: Any, change: Any, offset: int) -> None:
        apply(shard, change, offset)
        if change.key in shard._entries:
            shard._entries[change.key].updates = 0

    return mistaken


MISTAKES = [
    mistake(
        "the smaller delivery count counts",
        instead(f"{BATCHES}:_swept", with_ranks(lambda it: it._replace(delivery_count=-it.delivery_count))),
    ),
    mistake(
        "the smaller state counts",
        instead(f"{BATCHES}:_swept", with_ranks(lambda it: it._replace(delivery_state=-it.delivery_state))),
    ),
    mistake(
        "the state comes before the delivery count",
        instead(
            f"{BATCHES}:_swept",
            with_ranks(lambda it: it._replace(delivery_state=it.delivery_count, delivery_count=it.delivery_state)),
        ),
    ),
    mistake(
        "what adjoins stays apart",
        instead(f"{BATCHES}:_add", lambda _: lambda batches, batch: batches.append(batch)),
    ),
    mistake(
        "what is below the start offset stays",
        instead(f"{BATCHES}:_cut", lambda _: lambda batches, _start_offset: list(batches)),
    ),
    mistake(
        "a batch that the start offset divides is dropped",
        instead(
            f"{BATCHES}:_cut",
            lambda _: lambda batches, start_offset: [it for it in batches if it.first_offset >= start_offset],
        ),
    ),
    mistake(
        "an update replaces the batches before it",
        instead("kwire.share.coordinator.records:Update.applied_to", without_updates_before),
    ),
    mistake(
        "an update without a start offset takes it away",
        instead("kwire.share.coordinator.records:Update.applied_to", with_the_start_offset_as_it_is),
    ),
    mistake(
        "the record of a snapshot has no batches",
        instead("kwire.share.coordinator.records:Snapshot.record", recording(without_batches)),
    ),
    mistake(
        "the record of an update has no count",
        instead("kwire.share.coordinator.records:Update.record", recording(without_a_count)),
    ),
    mistake(
        "a state changes although its record could not be appended", instead(f"{SHARD}._appended", applied_nevertheless)
    ),
    mistake("records are taken for the ones behind them", instead(f"{SHARD}._appended", one_offset_late)),
    mistake("an obsolete leader is let in", instead(f"{MODULE}:_check_leader_epoch", always(None))),
    mistake("an obsolete state epoch is let in", instead(f"{MODULE}:_check_state_epoch", always(None))),
    mistake(
        "the epoch itself is fenced",
        instead(
            f"{MODULE}:_check_leader_epoch",
            lambda check: lambda entry, epoch: check(entry, epoch if epoch == -1 else epoch - 1),
        ),
    ),
    mistake("a newer leader fences nobody", instead(f"{SHARD}._apply", keeping_the_epochs)),
    mistake("a partition that is not there gets a state", instead(f"{SHARD}._check_exists", always(None))),
    mistake("what is deleted comes back", instead(f"{SHARD}._append", appending(without_tombstones))),
    mistake("all states go with a topic", instead(f"{SHARD}.forget_topics", of_all_topics)),
    mistake(
        "the states of a topic stay",
        instead(f"{SHARD}._append", appending(lambda _changes: ()), seen_by=f"{SHARD}.forget_topics"),
    ),
    mistake("there is never a second snapshot", instead(f"{SHARD}._apply", never_counting)),
    mistake("what the newest snapshot does not need is deleted", instead(f"{SHARD}._needed_from", the_newest)),
    mistake("the last snapshot is deleted", instead(f"{SHARD}._needed_from", one_more)),
    mistake("nothing is deleted", instead(f"{SHARD}._needed_from", always(None))),
    mistake(
        "a prune that failed is not tried again",
        instead(
            f"{SHARD}.pruned",
            lambda pruned: lambda shard, offset, *, done, now: pruned(shard, offset, done=True, now=now),
        ),
    ),
    mistake(
        "idle states are not recorded again",
        instead(f"{SHARD}._append", appending(lambda _changes: ()), seen_by=COLD),
    ),
    mistake(
        "idle states are recorded again for ever",
        instead(f"{SHARD}._append", appending(as_if_requested), seen_by=COLD),
    ),
    mistake("a restart sets no deadlines", instead(f"{SHARD}.loaded", always(()))),
]


@pytest.mark.parametrize("mistaken", MISTAKES, ids=lambda mutant: mutant.name)
def test_a_mistake_is_noticed(mistaken: Mutant) -> None:
    LIVES.assert_find(mistaken.change)


@pytest.mark.soak
def test_without_a_mistake_nothing_is_noticed() -> None:
    LIVES.live()
