"""Traces of the storage alone: a log dir and its logs, driven as a broker drives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kwire_protocol.control_records import build_end_transaction_batch
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage import names
from kwire_storage.compaction import planning as compaction
from kwire_storage.compaction.planning import Compaction
from kwire_storage.config import LogConfig
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.log.log import Log

from testkit.storage.compacting import exchange
from testkit.storage.logs import open_logs
from testkit.worlds.power_cuts.checking import check_log, contents, producers_of
from testkit.worlds.power_cuts.history import (
    Batch,
    Cleaned,
    Created,
    Deleted,
    Event,
    Flushed,
    Found,
    PartitionHistory,
    Sent,
    StartMoved,
    StartStored,
    Truncated,
)
from testkit.worlds.power_cuts.sweep import Moment

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, file_delete_delay_ms=0, retention_ms=-1)
Key = tuple[str, int]
T: Key = ("t", 0)
U: Key = ("u", 0)


class StorageTrace:
    """`steps` is what happens after the folder was opened. The helpers do one thing each, and note it."""

    def __init__(self, name: str, steps: Callable[[StorageTrace], None], config: LogConfig = CONFIG) -> None:
        self.name = name
        self.config = config
        self.steps = steps
        self.histories: dict[Key, PartitionHistory] = {}
        self.salt = 0
        self.sequences: dict[int, int] = {}
        self.leader_epoch = 0

    def run(self, disk: FaultyDisk) -> None:
        self.disk = disk
        self.open()
        self.steps(self)

    # -- what a broker does

    def open(self) -> None:
        self.folder = open_folder(self.disk, self.config)

    def log(self, key: Key = T) -> Log:
        return self.folder.logs[key]

    def create(self, key: Key = T) -> None:
        with self._noted(key, Created(self._now)):
            self.folder.create_log(*key, bytes([self.salt]) * 16, self.config, now_ms=0)

    def delete(self, key: Key = T) -> None:
        with self._noted(key, Deleted(self._now)):
            self.folder.delete_log(*key, self._now.to_bytes(16, "big"))

    def remove_deleted(self) -> None:
        deleted = self.folder.take_deleted(0)
        if deleted is not None:
            self.folder.remove(deleted)

    def send(
        self,
        *counts: int,
        key: Key = T,
        producer_id: int = 1,
        size: int | None = 40,
        transactional: bool = False,
        first: int = 0,
    ) -> None:
        """A batch of so many records for each count, with keys from that number on; without a size they delete."""
        for count in counts:
            sequence = self.sequences.get(producer_id, 0)
            self.salt += 1
            records = [
                Record(
                    number,
                    1000 + self.salt * 10 + number,
                    b"k%d" % (first + number),
                    None if size is None else bytes([self.salt % 256]) * size,
                )
                for number in range(count)
            ]
            self._append(
                key,
                build_batch(
                    records,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=sequence,
                    transactional=transactional,
                ),
            )
            self.sequences[producer_id] = sequence + count

    def end_transaction(self, *, commit: bool, key: Key = T, producer_id: int = 1) -> None:
        self._append(
            key,
            build_end_transaction_batch(
                commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1000
            ),
        )

    def _append(self, key: Key, batch: bytes) -> None:
        log, buffer = self.log(key), bytearray(batch)
        header = read_header(buffer)
        base = log.log_end_offset
        # Its place is known, its bytes are when it stands there: `assign` patches them.
        sent = Sent(self._now, Batch(base, base + header.last_offset_delta + 1, b""))
        events = self._history(key).events
        events.append(sent)
        try:
            log.append(memoryview(buffer), header, leader_epoch=self.leader_epoch, now_ms=0)
        finally:
            # A refused batch may still be there as a whole.
            sent.batch = sent.batch._replace(data=bytes(buffer))
        sent.answered = self._now

    def flush(self, key: Key = T) -> None:
        log = self.log(key)
        # The names of segments that went are on the medium then.
        with (
            self._noted(key, Flushed(self._now, log.log_end_offset)),
            self._noted(key, StartStored(self._now, log.segments.bases[0])),
        ):
            log.flush()

    def checkpoint(self) -> None:
        # As in Kafka, a start that is the first segment's name is not in the checkpoint.
        stored = {
            key: StartStored(self._now, log.log_start_offset)
            for key, log in self.folder.logs.items()
            if log.log_start_offset > log.segments.bases[0]
        }
        self.folder.write(
            self.folder.take_checkpoints({key: log.log_end_offset for key, log in self.folder.logs.items()})
        )
        for key, event in stored.items():
            event.answered = self._now
            self._history(key).events.append(event)

    def roll(self, key: Key = T) -> None:
        self.log(key).roll(0)

    def delete_records(self, offset: int, key: Key = T) -> None:
        with self._noted(key, StartMoved(self._now, offset)):
            self.log(key).advance_log_start(offset)

    def apply_retention(self, key: Key = T, *, now_ms: int = 0) -> None:
        log = self.log(key)
        with self._noted(key, StartMoved(self._now, log.log_end_offset)):
            log.apply_retention(now_ms, log.log_end_offset)

    def truncate(self, offset: int, key: Key = T) -> None:
        log = self.log(key)
        with self._noted(key, Truncated(self._now, offset)):
            self._lower_checkpoints(key, offset)
            log.truncate_to(offset)
        # The sequences that were cut off come again.
        for producer_id in self.sequences:
            entry = log.producers.entries.get(producer_id)
            self.sequences[producer_id] = entry.last_sequence + 1 if entry is not None else 0

    def truncate_fully(self, offset: int, key: Key = T) -> None:
        with self._noted(key, Truncated(self._now, offset, fully=True)):
            self._lower_checkpoints(key, 0)
            self.log(key).truncate_fully_and_start_at(offset)
        self.sequences.clear()

    def _lower_checkpoints(self, key: Key, offset: int) -> None:
        """See `Log.truncate_to`: what comes at the offset is neither flushed nor compacted."""
        checkpoints = self.folder._checkpoints
        for name, known in (
            (names.CLEANER_CHECKPOINT, checkpoints.cleaned),
            (names.RECOVERY_POINT_CHECKPOINT, checkpoints.recovery_points),
        ):
            if offset < known.get(key, 0):
                known[key] = offset
                checkpoints.write({name: known})

    def clean(self, key: Key = T, *, now_ms: int = 0) -> None:
        """Compaction, as the broker's cleaner goes about it."""
        log = self.log(key)
        with self._noted(key, Cleaned(self._now, log.active.base_offset)):
            if log.recovery_point < log.active.base_offset:
                self.flush(key)
            dirt = compaction.measure(log, compaction.cleanable_end(log, log.log_end_offset), now_ms)
            cleaning = Compaction.begin(log, dirt, now_ms=now_ms, map_bytes=1 << 20)
            self.folder.write(self.folder.take_before_cleaning(key, dirt.end_offset))
            list(cleaning.write())
            exchange(log, cleaning, now_ms=now_ms)

    def close(self) -> None:
        """The clean stop."""
        logs = self.folder.logs
        events: list[tuple[Key, Event]] = []
        for key, log in logs.items():
            events.append((key, Flushed(self._now, log.log_end_offset)))
            events.append((key, StartStored(self._now, log.log_start_offset)))
        self.folder.close({key: log.log_end_offset for key, log in logs.items()})
        for key, event in events:
            event.answered = self._now
            self._history(key).events.append(event)

    def abandon(self) -> None:
        """Kills the process; the next `open` is on the same machine, which keeps running."""
        self.folder.abandon()

    @property
    def _now(self) -> int:
        return len(self.disk.journal)

    def _history(self, key: Key) -> PartitionHistory:
        return self.histories.setdefault(key, PartitionHistory())

    @contextmanager
    def _noted(self, key: Key, event: Event) -> Iterator[None]:
        self._history(key).events.append(event)
        yield
        event.answered = self._now

    # -- what must hold

    def check(self, disk: FaultyDisk, moment: Moment) -> None:
        folder = open_folder(disk, self.config)
        self._check_folder(folder, moment)
        ends, producers = {}, {}
        for key, log in folder.logs.items():
            end = log.log_end_offset
            batch = bytearray(build_batch([Record(0, 0, None, b"afterwards")]))
            log.append(memoryview(batch), read_header(batch), leader_epoch=99, now_ms=0)
            assert log.log_end_offset == end + 1
            ends[key], producers[key] = contents(log), producers_of(log)
        folder.close()
        folder = open_folder(disk, self.config)
        assert folder.clean_shutdown
        for key, found in ends.items():
            log = folder.logs[key]
            assert log.log_end_offset == found[-1].end, "a clean stop was not believed"
            assert contents(log) == found, "a clean stop changed the log"
            assert producers_of(log) == producers[key], "a clean stop changed the producers"
        folder.abandon()

    def _check_folder(self, folder: LogDir, moment: Moment) -> None:
        for key, history in self.histories.items():
            known = history.at(moment.position)
            log = folder.logs.get(key)
            if log is not None:
                check_log(log, known, lost_power=moment.lost_power)
            else:
                assert not known.must_exist(lost_power=moment.lost_power), f"{key} is gone"
        assert folder.logs.keys() <= self.histories.keys()

    def next_life(self, moment: Moment) -> StorageTrace:
        return NextLife(self, moment)


class NextLife(StorageTrace):
    """Restarts, and writes other records where the life before left off."""

    def __init__(self, before: StorageTrace, moment: Moment) -> None:
        super().__init__(f"{before.name}, a life later", lambda _: self._continue(), before.config)
        self.salt = before.salt + 100
        self.leader_epoch = before.leader_epoch + 1
        self.moment = moment
        for key, history in before.histories.items():
            known = history.at(moment.position)
            if moment.lost_power:
                known.answered_end, known.exists = known.durable_end, known.durably_exists
            self.histories[key] = PartitionHistory(known)

    def _continue(self) -> None:
        for key, log in self.folder.logs.items():
            timeline = check_log(log, self._history(key).before, lost_power=self.moment.lost_power)
            found = Found(self._now, timeline, log.log_start_offset, self.moment.lost_power)
            found.answered = self._now
            self._history(key).events.append(found)
        keys = list(self.folder.logs)
        for key in keys:
            if self.moment.position % 2:
                self.roll(key)
            self.send(1, 1, key=key, producer_id=50)
        for key in keys:
            self.flush(key)
        self.checkpoint()
        for key in keys:
            self.send(1, 3, key=key, producer_id=50, size=150)
            self.roll(key)
            if self.config.compacts:
                self.clean(key, now_ms=10_000)
            self.send(1, key=key, producer_id=50)
        self.close()


def open_folder(disk: FaultyDisk, config: LogConfig) -> LogDir:
    folder = LogDir.open(disk, cluster_id="c", node_id=1, directory_id=bytes(16))
    open_logs(folder, config)
    return folder
