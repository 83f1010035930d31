"""Any history of transactions as a reader of committed data sees it, fetched from any offset."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.records import Record, build_batch, build_empty_batch, build_end_transaction_batch, read_header

from kwire.client.committed import visible_batches

PRODUCERS = (1, 2, 3)
PLAIN = 0
WRITE, COMMIT, ABORT = "write", "commit", "abort"
HISTORIES = st.lists(
    st.tuples(st.sampled_from((PLAIN, *PRODUCERS)), st.sampled_from((WRITE, WRITE, COMMIT, ABORT)), st.integers(1, 3)),
    max_size=30,
)


@attrs.define
class Partition:
    """A partition's log, written as brokers write it."""

    batches: list[tuple[int, bytes]] = attrs.field(factory=list)
    """With the first offset of each."""
    next_offset: int = 0
    open: dict[int, list[int]] = attrs.field(factory=dict)
    """Offsets of the open transaction's batches, by producer."""
    seen: set[int] = attrs.field(factory=set)
    """First offsets of the batches that are committed, or were in no transaction."""
    aborted: list[tuple[int, int, int]] = attrs.field(factory=list)
    """Producer, first offset, offset of the marker."""

    def append(self, batch: bytes) -> int:
        at = self.next_offset
        self.batches.append((at, batch))
        self.next_offset = read_header(batch).next_offset
        return at

    def write(self, producer: int, count: int) -> None:
        records = [Record(value=b"v")] * count
        if producer == PLAIN:
            self.seen.add(self.append(build_batch(records, base_offset=self.next_offset)))
            return
        batch = build_batch(
            records,
            base_offset=self.next_offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        self.open.setdefault(producer, []).append(self.append(batch))

    def end(self, producer: int, *, commit: bool) -> None:
        written = self.open.pop(producer, [])
        marker = self.append(
            build_end_transaction_batch(
                commit=commit,
                producer_id=producer,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=0,
                base_offset=self.next_offset,
            )
        )
        if commit:
            self.seen.update(written)
        elif written:
            self.aborted.append((producer, written[0], marker))

    @property
    def last_stable_offset(self) -> int:
        return min((written[0] for written in self.open.values()), default=self.next_offset)


def written(history: list[tuple[int, str, int]]) -> Partition:
    partition = Partition()
    for producer, what, count in history:
        if what == WRITE:
            partition.write(producer, count)
        elif producer != PLAIN:
            partition.end(producer, commit=what == COMMIT)
    return partition


def fetch(partition: Partition, start: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Returns a broker's answer to read_committed: whole batches, and the aborted transactions that reach into them."""
    stop = partition.last_stable_offset
    records = b"".join(batch for at, batch in partition.batches if start <= at < stop)
    aborted = [(who, first) for who, first, marker in partition.aborted if marker >= start and first < stop]
    return records, aborted


@given(HISTORIES, st.data())
def test_exactly_what_is_committed_is_visible(history: list[tuple[int, str, int]], data: st.DataObject) -> None:
    partition = written(history)
    starts = [at for at, _ in partition.batches] or [0]
    start = data.draw(st.sampled_from(starts))
    records, aborted = fetch(partition, start)
    reordered = data.draw(st.permutations(aborted))
    found = [header.base_offset for _, header, is_visible in visible_batches(records, reordered) if is_visible]
    assert found == sorted(at for at in partition.seen if start <= at < partition.last_stable_offset)


@given(HISTORIES)
def test_a_reader_of_what_is_uncommitted_sees_all_but_markers(history: list[tuple[int, str, int]]) -> None:
    partition = written(history)
    records = b"".join(batch for _, batch in partition.batches)
    found = [(header.base_offset, is_visible) for _, header, is_visible in visible_batches(records)]
    assert found == [(at, not read_header(batch).is_control) for at, batch in partition.batches]


def test_a_marker_without_its_record_ends_nothing() -> None:
    partition = Partition()
    partition.write(1, 2)
    partition.end(1, commit=False)
    partition.write(1, 1)
    (_, first), (_, marker), (_, second) = partition.batches
    emptied = build_empty_batch(read_header(marker))
    found = [seen for _, _, seen in visible_batches(first + emptied + second, [(1, 0)])]
    assert found == [False, False, False]
    assert [seen for _, _, seen in visible_batches(first + marker + second, [(1, 0)])] == [False, False, True]


def test_what_is_in_no_transaction_is_visible_whoever_wrote_it() -> None:
    batch = build_batch([Record()], base_offset=5, producer_id=1, producer_epoch=0, base_sequence=0)
    assert [seen for _, _, seen in visible_batches(batch, [(1, 0)])] == [True]


def test_aborted_transactions_may_be_listed_in_any_order() -> None:
    partition = Partition()
    for producer in (1, 2):
        partition.write(producer, 1)
        partition.end(producer, commit=False)
    records, aborted = fetch(partition, 0)
    for reordered in (aborted, aborted[::-1]):
        assert not any(is_visible for _, _, is_visible in visible_batches(records, reordered))
