"""The answers to clients, and what must be seen because of them: transactions, and partitions as lists of batches.

A transaction is decided by the answer to its producer's EndTxn, by its timeout, or by a producer that fenced it. Its
part in a partition is a `Piece`, from its first batch there to the first marker of its producer after that. A piece
that has its marker is committed if the transaction is, and if no admin has ended it (WriteTxnMarkers).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode

from testkit.scenes.direct.broker_driver import TopicPartition
from testkit.scenes.direct.clients import NOBODY, Identity, Keyed
from testkit.scenes.direct.reading import Batch, Fetched, visible
from testkit.worlds.exactly_once.scene import OFFSETS

Committed: TypeAlias = tuple[str, TopicPartition, int]
"""Group, place and offset."""


@attrs.define(eq=False)
class Work:
    """A transaction. `outcome` is whether it is committed, None until that is decided."""

    transactional_id: str
    began_ms: int
    added: set[TopicPartition] = attrs.field(factory=set)
    outcome: bool | None = None


@attrs.define(eq=False)
class Piece:
    """A part of a transaction. `work` is None for a hanging one, which no coordinator has."""

    identity: Identity
    first_offset: int
    work: Work | None
    last_offset: int
    ended_by_admin: bool = False
    marker_offset: int | None = None

    @property
    def outcome(self) -> bool | None:
        if self.ended_by_admin:
            return False
        return None if self.work is None else self.work.outcome


@attrs.frozen
class Sent:
    """A batch that was acknowledged."""

    base_offset: int
    last_offset: int
    pairs: tuple[Keyed, ...]
    commits: tuple[Committed, ...]
    """The commits in the records of the offsets topic."""
    piece: Piece | None
    """None outside of transactions."""


@attrs.define(eq=False)
class Log:
    """One partition."""

    tp: TopicPartition
    sent: list[Sent] = attrs.field(factory=list)
    pieces: list[Piece] = attrs.field(factory=list)
    open: dict[int, Piece] = attrs.field(factory=dict)
    """The pieces without a marker, by producer id."""
    end_offset: int = 0
    log_start_offset: int = 0
    last_stable_offset: int = 0
    has_lost: bool = False
    """Something was deleted at its beginning: after a start a producer may be unknown here."""
    is_cleaned: bool = False

    # -- what happens

    def take(
        self, base_offset: int, pairs: tuple[Keyed, ...], identity: Identity = NOBODY, work: Work | None = None
    ) -> None:
        """A batch was acknowledged; with an identity it is part of a transaction."""
        assert base_offset == self.end_offset, f"{self.tp}: acknowledged at {base_offset}, not {self.end_offset}"
        self._take(len(pairs), pairs, (), identity, work)

    def take_commit(self, committed: Committed, identity: Identity = NOBODY, work: Work | None = None) -> None:
        """Notes the commit of a group's offset; the answer does not have its offset in the log."""
        self._take(1, (), (committed,), identity, work)

    def _take(
        self,
        count: int,
        pairs: tuple[Keyed, ...] = (),
        commits: tuple[Committed, ...] = (),
        identity: Identity = NOBODY,
        work: Work | None = None,
    ) -> None:
        base_offset, last_offset = self.end_offset, self.end_offset + count - 1
        piece = None
        if identity != NOBODY:
            piece = self.open.get(identity[0])
            if piece is None:
                piece = self.open[identity[0]] = Piece(identity, base_offset, work, last_offset)
                self.pieces.append(piece)
            assert piece.work is work, f"{self.tp}: a batch of a new transaction before the marker of the old one"
            piece.last_offset = last_offset
        self.sent.append(Sent(base_offset, last_offset, pairs, commits, piece))
        self.end_offset = last_offset + 1

    def late_for(self, identity: Identity) -> Piece | None:
        """Notes pieces that are decided, and open until the marker comes: until then their producer may add to them, as
        in Kafka.
        """
        piece = self.open.get(identity[0])
        decided = piece is not None and piece.work is not None and piece.work.outcome is not None
        return piece if piece is not None and decided and piece.identity == identity else None

    def follow(self, batches: list[Batch]) -> None:
        """Takes in the markers behind `end_offset`: nothing else may be there."""
        for batch in batches:
            header = batch.header
            if header.last_offset < self.end_offset:
                continue
            assert header.base_offset == self.end_offset
            if self.tp == OFFSETS and all(record.value is None for record in batch.records):
                self._take(len(batch.records))  # a group that had nothing is gone
                continue
            assert header.is_control, f"{self.tp}: no producer got an answer about the batch at {header.base_offset}"
            self.end_offset = header.next_offset
            piece = self.open.pop(header.producer_id, None)
            if piece is not None:
                assert piece.outcome is not None, f"{self.tp}: the marker at {header.base_offset} comes undecided"
                assert piece.outcome == batch.committed, f"{self.tp}: the marker at {header.base_offset} lies"
                piece.marker_offset = header.base_offset

    # -- what must hold

    def check_all(self, batches: list[Batch], log_start_offset: int) -> None:
        """Checks a read_uncommitted reader, from the log start on: everything is there, and nothing else."""
        found = [
            (batch.header.base_offset, batch.header.last_offset, _pairs(batch))
            for batch in batches
            if not batch.header.is_control
        ]
        wanted = [it for it in self.sent if it.last_offset >= log_start_offset]
        if self.is_cleaned or self.tp == OFFSETS:
            offsets = {it.base_offset for it in wanted}
            assert {base for base, _, _ in found} <= offsets, f"{self.tp}: batches out of nowhere"
            return
        assert found == [(it.base_offset, it.last_offset, it.pairs) for it in wanted], f"{self.tp}"

    def check_stable(self, fetched: Fetched) -> None:
        """The last stable offset is where the first open transaction begins, as far as it is still there."""
        start, stable = fetched.log_start_offset, fetched.last_stable_offset
        assert start <= stable <= fetched.high_watermark == self.end_offset
        lowest = min((max(piece.first_offset, start) for piece in self.open.values()), default=self.end_offset)
        highest = min(
            (
                max(sent.base_offset, start)
                for sent in self.sent
                if sent.piece is not None and sent.piece.marker_offset is None and sent.last_offset >= start
            ),
            default=self.end_offset,
        )
        assert lowest <= stable <= highest, f"{self.tp}: stable up to {stable}, not {lowest}..{highest}"
        assert stable >= self.last_stable_offset, f"{self.tp}: stable up to {self.last_stable_offset}, now {stable}"
        self.last_stable_offset = stable

    def check_committed(self, fetched: Fetched, offset: int) -> None:
        """Checks one response to a read_committed fetch from `offset`."""
        end = fetched.end
        assert (end is None) == (offset >= fetched.last_stable_offset), (
            f"{self.tp}: the response from {offset} ends at {end}"
        )
        if end is None:
            assert not fetched.aborted
            return
        assert end <= fetched.last_stable_offset
        for aborted in fetched.aborted:
            assert any(
                self._may_be_listed(piece, offset, aborted.producer_id, aborted.first_offset) for piece in self.pieces
            ), f"{self.tp}: at {offset} {aborted} is listed, which is none"
        seen = [(it.offset, bytes(it.key or b""), bytes(it.value or b"")) for it in visible(fetched, offset)]
        wanted = [it for it in self.committed(fetched.last_stable_offset) if offset <= it[0] < end]
        if self.is_cleaned:
            assert set(seen) <= set(wanted), f"{self.tp}: at {offset} {set(seen) - set(wanted)} are seen"
            latest = {key: at for at, key, _ in self.committed(fetched.last_stable_offset)}
            missing = {it for it in wanted if latest[it[1]] == it[0]} - set(seen)
            assert not missing, f"{self.tp}: at {offset} the last of their keys are missing: {missing}"
        else:
            assert seen == wanted, f"{self.tp}: at {offset}, up to {end}"

    def _may_be_listed(self, piece: Piece, offset: int, producer_id: int, first_offset: int) -> bool:
        """True if a fetch at `offset` may list this piece as an aborted transaction with these values."""
        if piece.identity[0] != producer_id or piece.outcome is not False:
            return False
        if piece.marker_offset is None or piece.marker_offset < offset:
            return False
        # Where its beginning is deleted, a start finds a later one.
        return piece.first_offset == first_offset or (
            self.has_lost and piece.first_offset < first_offset <= piece.last_offset
        )

    def committed(self, below: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Offset, key and value of all that a read_committed reader is to see."""
        for sent in self.sent:
            if sent.base_offset < below and (sent.piece is None or sent.piece.outcome is True):
                for number, (key, value) in enumerate(sent.pairs):
                    yield sent.base_offset + number, key, value

    def group_offsets(self, *, stable: bool) -> dict[tuple[str, TopicPartition], int | ErrorCode]:
        """Returns the committed offsets, for the offsets topic: the last commit counts, inside or outside of a
        transaction.
        """
        offsets: dict[tuple[str, TopicPartition], int | ErrorCode] = {}
        pending: set[tuple[str, TopicPartition]] = set()
        for sent in self.sent:
            for group, tp, offset in sent.commits:
                piece = sent.piece
                if piece is not None and piece.marker_offset is None:
                    pending.add((group, tp))
                elif piece is None or piece.outcome:
                    offsets[group, tp] = offset
        if stable:
            offsets |= dict.fromkeys(pending, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return offsets


def _pairs(batch: Batch) -> tuple[Keyed, ...]:
    return tuple((bytes(record.key or b""), bytes(record.value or b"")) for record in batch.records)
