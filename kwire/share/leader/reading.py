"""The part of the log that a ShareFetch reads: a range of whole batches for sendfile, and their positions.

Only the headers of the batches are read, and no more of them than can be acquired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import BATCH_HEADER_SIZE, BatchHeader, InvalidBatch, read_header
from kwire_storage.log.slices import LogSlice

from kwire.share.leader.acquiring import Fetched

if TYPE_CHECKING:
    from kwire.replicas.partition import Partition


@attrs.frozen
class ReadBatches:
    """`positions` has the position in the file of each batch of `fetched`, and finally the end of the last one."""

    fetched: Fetched
    piece: LogSlice
    positions: list[int]

    def slice(self, first_offset: int, last_offset: int) -> LogSlice:
        """The batches that have some of these offsets."""
        batches = self.fetched.batches
        begin = next(index for index, (_, last) in enumerate(batches) if last >= first_offset)
        end = next((index for index in range(begin, len(batches)) if batches[index][0] > last_offset), len(batches))
        position = self.positions[begin]
        return LogSlice(self.piece.file, position, self.positions[end] - position, batches[begin][0])


def read_batches(partition: Partition, piece: LogSlice, offset: int, until: int, *, committed: bool) -> ReadBatches:
    """The batches of a piece that was read at `offset`, up to the one that has offset `until`.

    With `committed`, records of aborted transactions are to be archived; control records always are. Raises KafkaError:
    CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
    """
    aborted: dict[int, list[tuple[int, int]]] = defaultdict(list)
    if committed:
        for transaction in partition.aborted_transactions(offset, piece):
            aborted[transaction.producer_id].append((transaction.first_offset, transaction.last_offset))
    batches: list[tuple[int, int]] = []
    archive: list[tuple[int, int]] = []
    positions: list[int] = []
    end = piece.position
    try:
        for position, header in _headers(piece):
            base, last = header.base_offset, header.last_offset
            positions.append(position)
            end = position + header.size_in_bytes
            batches.append((base, last))
            if header.is_control or (
                header.is_transactional
                and any(first <= base <= marker for first, marker in aborted.get(header.producer_id, ()))
            ):
                archive.append((base, last))
            if last >= until:
                break
    except InvalidBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    except OSError as error:
        raise partition.storage_error(error) from error
    return ReadBatches(Fetched(offset, batches, archive), piece, [*positions, end])


def _headers(piece: LogSlice) -> Iterator[tuple[int, BatchHeader]]:
    position, end = piece.position, piece.position + piece.size
    while position < end:
        header = read_header(piece.file.read(position, BATCH_HEADER_SIZE))
        yield position, header
        position += header.size_in_bytes
