"""The traces of the storage. To add one, write a function of a few lines and name it in `STORAGE_TRACES`."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from kwire_storage.config import LogConfig

from testkit.worlds.power_cuts.storage_trace import CONFIG, StorageTrace, T, U
from testkit.worlds.power_cuts.sweep import Bounds

COMPACTED = attrs.evolve(CONFIG, cleanup_policy="compact", delete_retention_ms=1000)

STORAGE_TRACES: dict[str, tuple[Callable[[StorageTrace], None], LogConfig]] = {}


def _trace(config: LogConfig = CONFIG) -> Callable[[Callable[[StorageTrace], None]], Callable[[StorageTrace], None]]:
    def register(steps: Callable[[StorageTrace], None]) -> Callable[[StorageTrace], None]:
        STORAGE_TRACES[steps.__name__.replace("_", " ")] = steps, config
        return steps

    return register


def bounds_of(name: str, *, full: bool) -> Bounds:
    """A compaction changes many names: there are more states than time."""
    compacts = STORAGE_TRACES[name][1].compacts
    if full:
        return Bounds(states=12, states_again=2, lives=400) if compacts else Bounds()
    return Bounds(states=3 if compacts else 4, states_again=1, lives=400, every=2, every_again=6)


def storage_trace(name: str) -> StorageTrace:
    steps, config = STORAGE_TRACES[name]
    return StorageTrace(name, steps, config)


@_trace()
def produce(it: StorageTrace) -> None:
    """Acknowledged by the operating system's leave."""
    it.create()
    it.send(1, 2, 3, 1, 2)
    it.leader_epoch = 1
    it.send(3, size=130)
    it.send(1, 1)
    it.close()


@_trace(attrs.evolve(CONFIG, segment_bytes=4000))
def produce_large_batches(it: StorageTrace) -> None:
    """Each of several sectors."""
    it.create()
    it.send(2, size=900)
    it.flush()
    it.send(1, size=1700)
    it.send(3, size=400)
    it.flush()
    it.send(1, 1)


@_trace()
def flush_each_append(it: StorageTrace) -> None:
    """flush.messages=1."""
    it.create()
    for count in (1, 2, 1, 3, 2, 2, 1):
        it.send(count, size=90)
        it.flush()
        it.checkpoint()
    it.send(2)
    it.flush()


@_trace()
def roll(it: StorageTrace) -> None:
    it.create()
    for number in range(9):
        it.send(number % 3 + 1, producer_id=number % 2)
        if number in (4, 6):
            it.flush()
        if number in (2, 6):
            it.roll()
        if number in (4, 6):
            it.checkpoint()
    it.leader_epoch = 3
    it.send(2, 2)
    it.flush()
    it.send(1)


@_trace()
def stop_and_start(it: StorageTrace) -> None:
    it.create()
    it.send(2, 3, size=90)
    it.close()
    it.open()
    it.send(3, 1)
    it.close()
    it.open()
    it.close()
    it.open()
    it.send(1, 2, size=200)
    it.flush()
    it.checkpoint()


@_trace()
def die_and_start(it: StorageTrace) -> None:
    """The process, not the machine."""
    it.create()
    it.send(2, 3, size=90)
    it.abandon()
    it.open()
    it.send(3, 1, size=90)
    it.flush()
    it.abandon()
    it.open()
    it.send(1, 2, size=200)
    it.checkpoint()
    it.abandon()
    it.open()
    it.flush()
    it.checkpoint()
    it.send(1)


@_trace()
def delete_records(it: StorageTrace) -> None:
    it.create()
    it.send(2, 2, 2, 2, size=90)
    it.flush()
    it.checkpoint()
    it.delete_records(3)
    it.checkpoint()
    it.send(3, 3, size=90)
    it.delete_records(7)
    it.apply_retention()
    it.flush()
    it.checkpoint()
    it.send(1)
    it.delete_records(15)
    it.checkpoint()
    it.close()


@_trace(attrs.evolve(CONFIG, retention_bytes=900))
def retention(it: StorageTrace) -> None:
    it.create()
    for number in range(10):
        it.send(2, size=90, producer_id=number // 4)
        if number % 3 == 2:
            it.apply_retention()
            it.checkpoint()
        if number == 5:
            it.flush()
    it.close()


@_trace()
def truncate(it: StorageTrace) -> None:
    """Truncates as a follower does whose leader has another history."""
    it.create()
    it.send(2, 2, 2, 2, 2, size=90)
    it.flush()
    it.checkpoint()
    it.leader_epoch = 2
    it.truncate(6)
    it.checkpoint()
    it.send(1, 1, 1, size=70)
    it.flush()
    it.checkpoint()
    it.send(3, 3, size=90)
    it.leader_epoch = 3
    it.truncate(2)
    it.checkpoint()
    it.send(2, size=60)
    it.flush()


@_trace()
def truncate_fully(it: StorageTrace) -> None:
    it.create()
    it.send(2, 2, 2, size=90)
    it.flush()
    it.checkpoint()
    it.truncate_fully(50)
    it.checkpoint()
    it.send(2, 2, size=90)
    it.flush()
    it.checkpoint()
    it.send(1)


@_trace()
def stop_and_truncate(it: StorageTrace) -> None:
    """Truncates within the last segment, below the snapshot of a clean stop, and writes up to that offset again."""
    it.create()
    it.send(2, 2, size=60)
    it.close()
    it.open()
    it.leader_epoch = 2
    it.truncate(2)
    it.send(2, producer_id=2, size=60)
    it.flush()
    it.checkpoint()
    it.send(1)


@_trace()
def transactions(it: StorageTrace) -> None:
    it.create()
    it.send(2, transactional=True)
    it.send(1, producer_id=2, transactional=True)
    it.end_transaction(commit=True)
    it.send(1, producer_id=2, transactional=True)
    it.flush()
    it.end_transaction(commit=False, producer_id=2)
    it.roll()
    it.send(2, transactional=True, size=90)
    it.send(2, transactional=True, size=90)
    it.checkpoint()
    it.end_transaction(commit=False)
    it.send(1, producer_id=2, transactional=True)
    it.flush()
    it.checkpoint()
    it.close()
    it.open()
    it.end_transaction(commit=False, producer_id=2)
    it.send(1)


@_trace()
def create_and_delete(it: StorageTrace) -> None:
    it.create(T)
    it.create(U)
    it.send(2, 2, key=T)
    it.send(1, 2, key=U)
    it.flush(U)
    it.checkpoint()
    it.delete(T)
    it.send(1, key=U)
    it.checkpoint()
    it.remove_deleted()
    it.close()
    it.open()
    it.send(2, key=U)
    it.delete(U)
    it.close()


@_trace(COMPACTED)
def compact(it: StorageTrace) -> None:
    """Nothing was flushed before; then again, with what was deleted meanwhile."""
    it.create()
    it.send(2, 1, 3, 1, size=90)
    it.send(2, first=2, size=90)
    it.roll()
    it.send(1, first=5)
    it.clean()
    it.send(2, size=None)
    it.send(1, 3, size=90)
    it.send(1, first=5, size=None)
    it.checkpoint()
    it.roll()
    it.send(1)
    it.clean(now_ms=100)
    it.remove_deleted()
    it.checkpoint()
    it.send(1, 1)


@_trace(COMPACTED)
def compact_away_what_was_deleted(it: StorageTrace) -> None:
    """Tombstones go, too, after their time; small segments become one."""
    it.create()
    it.send(3, 3, 3, size=90)
    it.send(1, size=None)
    it.flush()
    it.roll()
    it.clean()
    it.send(1, first=1, size=None)
    it.roll()
    it.clean(now_ms=2000)
    it.checkpoint()
    it.send(1, first=7)
    it.roll()
    it.clean(now_ms=4000)
    it.checkpoint()
    it.send(1, first=1)


@_trace(COMPACTED)
def compact_transactions(it: StorageTrace) -> None:
    """Committed, aborted, and decided by a marker that is beyond what is cleaned, and not flushed."""
    it.create()
    it.send(2, size=90)
    it.send(1, 2, transactional=True, size=90)
    it.send(1, producer_id=2, first=1, transactional=True, size=90)
    it.end_transaction(commit=False)
    it.end_transaction(commit=True, producer_id=2)
    it.send(1, producer_id=3, first=1, transactional=True, size=90)
    it.flush()
    it.roll()
    it.flush()
    it.checkpoint()
    it.end_transaction(commit=True, producer_id=3)
    it.clean()
    it.send(1, transactional=True, size=90)
    it.roll()
    it.end_transaction(commit=False)
    it.clean(now_ms=2000)
    it.checkpoint()
    it.roll()
    it.clean(now_ms=5000)
    it.send(1)


@_trace(COMPACTED)
def compact_and_stop(it: StorageTrace) -> None:
    it.create()
    it.send(2, 2, 2, size=90)
    it.roll()
    it.clean()
    it.close()
    it.open()
    it.send(2, 1, size=90)
    it.roll()
    it.clean(now_ms=100)
    it.abandon()
    it.open()
    it.send(1, 2, size=90)
    it.roll()
    it.clean(now_ms=200)
    it.close()


@_trace(attrs.evolve(COMPACTED, cleanup_policy="compact,delete", retention_bytes=900))
def compact_and_delete(it: StorageTrace) -> None:
    it.create()
    for number in range(7):
        it.send(2, size=90, first=number % 3, producer_id=number // 3)
        if number == 3:
            it.clean()
    it.apply_retention()
    it.roll()
    it.clean(now_ms=100)
    it.delete_records(it.log().segments.bases[1] + 1)
    it.apply_retention()
    it.checkpoint()
    it.send(2, 2, size=90)
    it.roll()
    it.clean(now_ms=200)
    it.apply_retention()
    it.send(1)


@_trace(COMPACTED)
def compact_and_truncate(it: StorageTrace) -> None:
    """Above what was cleaned, since no follower has to go back behind the high watermark."""
    it.create()
    it.send(2, 2, 2, size=90)
    it.roll()
    it.send(2, size=90)
    it.clean()
    it.send(2, 2, size=90)
    it.flush()
    it.checkpoint()
    it.leader_epoch = 2
    it.truncate(8)
    it.send(2, 1, first=1, size=90)
    it.roll()
    it.send(1, 1)
    it.clean(now_ms=2000)
    it.checkpoint()
    it.send(1)
