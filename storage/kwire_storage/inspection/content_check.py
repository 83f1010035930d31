"""Compares the records of a good batch with its header."""

from __future__ import annotations

from collections.abc import Iterator

from kwire_protocol.errors import ErrorCode
from kwire_protocol.records import InvalidBatch, batch_content, read_timestamps, scan_records

from kwire_storage.inspection.findings import Kind
from kwire_storage.log.walk import Batch


def check_content(batch: Batch) -> Iterator[tuple[Kind, str]]:
    """Yields at most one finding. Compaction may have left fewer records than offsets, or none."""
    header, data = batch.header, batch.data
    if data is None:
        yield Kind.UNCHECKED, f"a batch of {header.size_in_bytes} bytes"
        return
    if not header.records_count:
        # Compaction left only the header of a producer's last batch.
        return
    newest, previous, last_offset = -1, header.base_offset - 1, header.last_offset
    try:
        for scan in scan_records(batch_content(data, 0, header), header):
            for offset in scan.offsets:
                if not previous < offset <= last_offset:
                    problem = f"a record has offset {offset} behind {previous}, the batch {last_offset}"
                    yield Kind.MALFORMED_RECORDS, problem
                    return
                previous = offset
            newest = max(newest, *read_timestamps(header, scan.content, scan.starts))
    except InvalidBatch as error:
        too_large = error.code is ErrorCode.MESSAGE_TOO_LARGE
        yield (Kind.UNCHECKED if too_large else Kind.MALFORMED_RECORDS), error.message
        return
    if newest != header.max_timestamp:
        yield Kind.MAX_TIMESTAMP, f"the largest timestamp is {newest}, the header has {header.max_timestamp}"
