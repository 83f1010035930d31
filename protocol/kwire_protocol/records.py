"""Record batches: the only module to import for all of these parts.

* `record_batch.py`: the header, the check for a whole batch, patches in place
* `record_validation.py`: the rules for a producer's batch
* `record_codec.py`: records inside a batch, reading and building
* `record_scan.py`: scans records without decoding them
* `record_subset.py`: a batch with some of its records
* `record_search.py`: finds a record by time
* `control_records.py`: control records

protocol/README.md has the format.
"""

from __future__ import annotations

from kwire_protocol.batch_errors import CorruptBatch, InvalidBatch
from kwire_protocol.control_records import (
    ControlType,
    build_control_batch,
    build_end_transaction_batch,
    control_key,
    end_transaction_value,
    read_control_type,
    read_coordinator_epoch,
    versioned,
)
from kwire_protocol.record_batch import (
    BATCH_HEADER_SIZE,
    CREATE_TIME,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    assign,
    build_empty_batch,
    check_batch,
    iter_headers,
    read_header,
    set_create_time,
    set_log_append_time,
)
from kwire_protocol.record_codec import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Record,
    batch_content,
    build_batch,
    decode_records,
    iter_records,
)
from kwire_protocol.record_scan import RecordScan, read_timestamps, scan_records
from kwire_protocol.record_search import first_record_at_or_after, max_timestamp_record
from kwire_protocol.record_subset import build_subset
from kwire_protocol.record_validation import (
    RecordError,
    check_client_batch,
    read_plain_batch,
    read_produced_batch,
    validate_records,
)

__all__ = [
    "BATCH_HEADER_SIZE",
    "CREATE_TIME",
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "LENGTH_OVERHEAD",
    "LOG_APPEND_TIME",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "ControlType",
    "CorruptBatch",
    "InvalidBatch",
    "Record",
    "RecordError",
    "RecordScan",
    "assign",
    "batch_content",
    "build_batch",
    "build_control_batch",
    "build_empty_batch",
    "build_end_transaction_batch",
    "build_subset",
    "check_batch",
    "check_client_batch",
    "control_key",
    "decode_records",
    "end_transaction_value",
    "first_record_at_or_after",
    "iter_headers",
    "iter_records",
    "max_timestamp_record",
    "read_control_type",
    "read_coordinator_epoch",
    "read_header",
    "read_plain_batch",
    "read_produced_batch",
    "read_timestamps",
    "scan_records",
    "set_create_time",
    "set_log_append_time",
    "validate_records",
    "versioned",
]
