"""A log dir with something of everything in it, whose bytes are the same in each run, and damage to it."""

from __future__ import annotations

from pathlib import Path

from kwire_protocol.internal.transaction_state import TransactionLogKey, TransactionLogValue
from kwire_protocol.records import Record, build_batch, iter_headers, versioned
from kwire_protocol.wire import Writer
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.disk.files import RealDisk
from kwire_storage.log.log import LogConfig

from testkit.storage.logs import append_bytes, end_transaction
from testkit.storage.spoiling import wrong_count

CONFIG = LogConfig(index_interval_bytes=100)
FIRST_MS = 1_700_000_000_000
LOG = "00000000000000000000.log"


def write_log_dir(path: Path) -> None:
    """`orders-0`, with an aborted and an open transaction, and `__transaction_state-3`; stopped cleanly."""
    folder = LogDir.open(RealDisk(str(path)), cluster_id="cluster", node_id=1, directory_id=bytes(16))
    orders = folder.create_log("orders", 0, bytes(range(16)), CONFIG, now_ms=0)
    text = Record(0, FIRST_MS, b"key", b"order " + b"." * 34, [("from", b"kitchen"), ("r\x1baw", b"\x80")])
    rest = [Record(0, FIRST_MS + 1, None, b"\x00\xff\x1b[31m"), Record(1, FIRST_MS + 2, b"\x80gone", None)]
    append_bytes(orders, build_batch([text]), leader_epoch=3, now_ms=FIRST_MS)
    for number in range(3):
        batch = build_batch(rest, producer_id=1, producer_epoch=0, base_sequence=2 * number)
        append_bytes(orders, batch, leader_epoch=3, now_ms=FIRST_MS)
    for sequence in (0, 1):
        record = Record(0, FIRST_MS + 3, b"key", b"")
        batch = build_batch([record], producer_id=2, producer_epoch=0, base_sequence=sequence, transactional=True)
        append_bytes(orders, batch, leader_epoch=4, now_ms=FIRST_MS)
        if not sequence:
            end_transaction(orders, 2, commit=False, leader_epoch=4)
    state = folder.create_log("__transaction_state", 3, bytes(range(1, 17)), CONFIG, now_ms=0)
    append_bytes(state, _transactional_ids(), leader_epoch=0, now_ms=FIRST_MS)
    folder.close({("orders", 0): orders.log_end_offset, ("__transaction_state", 3): state.log_end_offset})


def _transactional_ids() -> bytes:
    key, value = Writer(), Writer()
    TransactionLogKey("payments").write(key, 0)
    ongoing = TransactionLogValue(producer_id=7, producer_epoch=2, transaction_status=1, transaction_partitions=None)
    ongoing.write(value, 1)
    keyed = versioned(0, key.getvalue())
    return build_batch(
        [
            Record(0, FIRST_MS, keyed, versioned(1, value.getvalue())),
            Record(1, FIRST_MS, keyed, None),
            Record(2, FIRST_MS, b"no such key", None),
        ]
    )


def damage_log_dir(path: Path) -> None:
    """Spoils a record, the number of records of a batch, and a header in `orders-0`, its epochs, and a checkpoint."""
    log = path / "orders-0" / LOG
    content = bytearray(log.read_bytes())
    at = [position for position, _ in iter_headers(bytes(content))]
    content[at[1] + 70] ^= 1
    content[at[3] : at[4]] = wrong_count(content[at[3] : at[4]])
    content[at[4] + 8 : at[4] + 40] = bytes(32)
    log.write_bytes(content)
    (path / "orders-0" / "leader-epoch-checkpoint").unlink()
    (path / "orders-0" / f"{LOG}.deleted").write_bytes(b"")
    (path / "recovery-point-offset-checkpoint").write_bytes(b"?")
