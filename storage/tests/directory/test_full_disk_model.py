"""Random traces on a disk whose room comes and goes, against a plain list of what was acknowledged.

Producers check the reserve first, as `Partition` does. After every step each log has what was acknowledged and nothing
else; a kill at any moment keeps it; a stop is clean however full the disk is, as long as no one else took the room that
the reserve had; and with enough room everything works again.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kwire_storage.config import LogConfig
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.errors import StorageError, is_full
from kwire_storage.log.log import Log

from devtools.suite.tiers import examples
from testkit.storage.logs import append, open_logs, read_all
from testkit.storage.small_disk import SmallDisk

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200, file_delete_delay_ms=50, retention_ms=1000)
RESERVE = 16_384
PLENTY = 1 << 20
PRODUCER = 7
PARTITIONS = st.integers(0, 2)


class FullDisk(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SmallDisk(PLENTY)
        self.now_ms = 0
        self.acknowledged: dict[int, list[tuple[int, int]]] = {}
        self.sequences: dict[int, int] = {}
        self.unique = 0
        self.folder = self.opened()

    def opened(self) -> LogDir:
        folder = LogDir.open(self.disk, cluster_id="c", node_id=1, directory_id=bytes(16), reserve_bytes=RESERVE)
        open_logs(folder, CONFIG, now_ms=self.now_ms)
        return folder

    def log(self, partition: int) -> Log:
        """Returns the partition's log, created if need be: its record is in the metadata log, so it has to be."""
        key = "orders", partition
        if key not in self.folder.logs:
            self.folder.create_log(*key, bytes(16), CONFIG, now_ms=self.now_ms)
            # It may have been there without a folder, and then without a record.
            assert not self.acknowledged.get(partition)
            self.acknowledged[partition] = []
            self.sequences[partition] = 0
        return self.folder.logs[key]

    @initialize(room_bytes=st.integers(0, 10_000))
    def begin(self, room_bytes: int) -> None:
        self.disk.fill(room_bytes)

    @rule(partition=PARTITIONS, count=st.integers(1, 3), size=st.integers(0, 400), epoch=st.integers(0, 2))
    def produce(self, partition: int, count: int, size: int, epoch: int) -> None:
        log = self.log(partition)
        sequence = self.sequences[partition]
        try:
            self.folder.reserve.check()
            result = append(
                log,
                count,
                size=size,
                timestamp_ms=self.now_ms,
                now_ms=self.now_ms,
                leader_epoch=max(epoch, log.leader_epochs.latest or 0),
                producer_id=PRODUCER,
                sequence=sequence,
            )
        except StorageError as error:
            if not (is_full(error) and self.folder.reserve.is_full):
                raise
            return
        self.sequences[partition] += count
        self.acknowledged[partition].append((result.base_offset, result.last_offset))

    @rule(ms=st.integers(1, 2000))
    def time_goes_by(self, ms: int) -> None:
        self.now_ms += ms
        for log in self.folder.logs.values():
            log.maybe_roll(self.now_ms)
            log.apply_retention(self.now_ms, log.log_end_offset)
        self.remove_deleted()

    def remove_deleted(self) -> None:
        deleted = self.folder.take_deleted(self.now_ms)
        if deleted is not None:
            self.folder.remove(deleted)

    @rule(partition=PARTITIONS, share=st.floats(0, 1))
    def records_are_deleted(self, partition: int, share: float) -> None:
        log = self.log(partition)
        start, end = log.log_start_offset, log.log_end_offset
        log.advance_log_start(start + int(share * (end - start)), now_ms=self.now_ms)

    @rule()
    def housekeeping(self) -> None:
        self.folder.reserve.reconcile()
        self.remove_deleted()
        for log in self.folder.logs.values():
            log.flush()
        self.folder.write(self.folder.take_checkpoints())

    @rule(partition=PARTITIONS)
    def the_topic_is_deleted(self, partition: int) -> None:
        if ("orders", partition) in self.folder.logs:
            self.unique += 1
            self.folder.delete_log("orders", partition, self.unique.to_bytes(16, "big"))
            del self.acknowledged[partition]

    @rule(room_bytes=st.integers(0, 3000))
    def another_process_takes_the_room(self, room_bytes: int) -> None:
        # What the reserve had is the broker's while it is out: nobody can keep a clean stop from a disk that is gone.
        kept = RESERVE if self.folder.reserve.is_out else 0
        self.disk.capacity_bytes = min(self.disk.capacity_bytes, self.disk.used_bytes + kept + room_bytes)

    @rule(more_bytes=st.integers(0, 3 * RESERVE))
    def room_returns(self, more_bytes: int) -> None:
        self.disk.capacity_bytes += more_bytes

    @rule()
    def it_is_stopped_and_started(self) -> None:
        starts = self.starts()
        self.folder.close()
        self.folder = self.opened()
        assert self.folder.clean_shutdown
        assert all(log.recovery is None for log in self.folder.logs.values())
        assert self.starts() == starts

    @rule()
    def it_is_killed_and_started(self) -> None:
        self.disk = self.disk.kill()
        self.folder = self.opened()

    @rule()
    def with_enough_room_everything_works(self) -> None:
        capacity_bytes, self.disk.capacity_bytes = self.disk.capacity_bytes, PLENTY
        assert self.folder.reserve.take_back()
        for partition in range(3):
            before = len(self.acknowledged.get(partition, ()))
            self.produce(partition, 1, 10, 0)
            assert len(self.acknowledged[partition]) == before + 1
        self.housekeeping()
        self.disk.capacity_bytes = max(capacity_bytes, self.disk.used_bytes)

    def starts(self) -> dict[tuple[str, int], int]:
        return {key: log.log_start_offset for key, log in self.folder.logs.items() if log.has_folder}

    @invariant()
    def each_log_holds_what_was_acknowledged(self) -> None:
        for (_, partition), log in self.folder.logs.items():
            acknowledged = self.acknowledged[partition]
            kept = [batch for batch in acknowledged if batch[1] >= log.log_start_offset]
            assert read_all(log) == kept
            assert log.log_end_offset == (acknowledged[-1][1] + 1 if acknowledged else log.log_start_offset)
            entry = log.producers.entries.get(PRODUCER)
            if entry is not None:
                assert entry.last_sequence == self.sequences[partition] - 1

    def teardown(self) -> None:
        self.it_is_stopped_and_started()
        self.each_log_holds_what_was_acknowledged()


FullDisk.TestCase.settings = settings(max_examples=examples(20), stateful_step_count=50, deadline=None)
test_full_disk = FullDisk.TestCase
