"""The metadata log as nodes of ZooKeeper: one for each batch of records, named by its first offset.

A node's content is a version (one byte), the token of its append (16 bytes), and a record batch in Kafka's format. The
batch's header has the offset at which the next node begins. So a reader follows the nodes and never sees a later one
first. And an append is the creation of the node at the log's end offset: of two writers only one can do that.

`/kwire/log` has the log's start offset, which moves when a snapshot has replaced the nodes before. Without a second
condition a slow writer could create a node that existed once and is removed. So an append is a multi-operation that
also checks that the start of the log is the one that the writer has seen.

Several nodes of one append have the same token, and are created by one multi-operation.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import attrs
from kwire_protocol.records import (
    CorruptBatch,
    InvalidBatch,
    Record,
    build_batch,
    check_batch,
    iter_records,
    read_header,
)
from kwire_storage.errors import CorruptLogError

from kwire.cluster.zookeeper.keeper import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    Keeper,
    NodeExistsError,
    NoNodeError,
    RefusedError,
    TimedOutError,
    ZooKeeperError,
    patiently,
)
from kwire.metadata.log import LogTruncated
from kwire.metadata.log_batches import READ_BYTES, ReadRecords

ROOT: Final = "/kwire"
LOG: Final = f"{ROOT}/log"
MOST_NODE_BYTES: Final = 512 * 1024
MOST_REQUEST_BYTES: Final = 1_000_000
"""ZooKeeper closes the connection of a request that is larger than its jute.maxbuffer, by default 1,048,575."""
BYTES_PER_OPERATION: Final = 200
"""An upper bound of a creation's bytes without the content: path, access control list, lengths."""
DELETES_AT_ONCE: Final = 100
_VERSION: Final = b"\x01"
_TOKEN_BYTES: Final = 16
_RECORD_BYTES: Final = 32
"""An upper bound of a record's bytes without its value."""
_BATCH_BYTES: Final = 100


@attrs.frozen
class Begin:
    """The offset at which the log begins, and the version of the node that contains it."""

    offset: int
    version: int

    def encode(self) -> bytes:
        return json.dumps({"version": 1, "start_offset": self.offset}, separators=(",", ":")).encode()


@attrs.frozen
class Entry:
    """A node of the log. `end_offset` is the name of the next one."""

    token: bytes
    end_offset: int
    batch: memoryview

    @classmethod
    def decode(cls, content: bytes, offset: int) -> Entry:
        """Decodes the node of that offset. Raises CorruptLogError."""
        batch = memoryview(content)[1 + _TOKEN_BYTES :]
        try:
            if content[:1] != _VERSION:
                raise CorruptBatch(f"it has version {content[:1]!r}, {_VERSION!r} is known")
            header = read_header(batch)
            check_batch(batch, header)
        except InvalidBatch as error:
            raise CorruptLogError(f"{node_of(offset)} in ZooKeeper: {error}") from error
        if header.base_offset != offset or header.next_offset <= offset or header.size_in_bytes != len(batch):
            raise CorruptLogError(f"{node_of(offset)} in ZooKeeper has the records of another node, or more than those")
        return cls(content[1 : 1 + _TOKEN_BYTES], header.next_offset, batch)

    def records(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """Returns offsets and values from that offset on. Raises CorruptLogError."""
        try:
            for it in iter_records(self.batch):
                if it.offset >= offset and it.value is not None:
                    yield it.offset, it.value
        except InvalidBatch as error:
            raise CorruptLogError(f"records of the metadata log in ZooKeeper: {error}") from error


def node_of(offset: int) -> str:
    return f"{LOG}/{name_of(offset)}"


def name_of(offset: int) -> str:
    return f"{offset:020}"


def parse_name(name: str) -> int | None:
    """The offset of a node's name; None for a name that is not kwire's."""
    return int(name) if len(name) == 20 and name.isascii() and name.isdigit() else None


def append_nodes(values: Sequence[bytes], offset: int, token: bytes, now_ms: int) -> list[Create]:
    """Returns the nodes that an append creates. Raises ZooKeeperError if it is larger than a request may be."""
    nodes: list[Create] = []
    begin = 0
    while begin < len(values):
        end, size = begin, _BATCH_BYTES
        while end < len(values) and (end == begin or size + len(values[end]) + _RECORD_BYTES <= MOST_NODE_BYTES):
            size += len(values[end]) + _RECORD_BYTES
            end += 1
        batch = build_batch([Record(0, now_ms, None, value) for value in values[begin:end]], base_offset=offset + begin)
        nodes.append(Create(node_of(offset + begin), _VERSION + token + batch))
        begin = end
    size = sum(len(it.data) + BYTES_PER_OPERATION for it in nodes)
    if size > MOST_REQUEST_BYTES:
        raise ZooKeeperError(
            f"a change of the metadata has {size} bytes, and ZooKeeper takes {MOST_REQUEST_BYTES} at once: "
            "ask for fewer topics, partitions or configurations in one request",
            errno.EMSGSIZE,
        )
    return nodes


def read_begin(keeper: Keeper) -> Begin:
    """Reads the start of the log. Raises CorruptLogError, and the errors of a Keeper."""
    found = keeper.get(LOG)
    try:
        content = json.loads(found.data)
        offset = content["start_offset"]
        if content["version"] != 1 or not isinstance(offset, int) or offset < 0:
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptLogError(f"{LOG} in ZooKeeper does not say where the log begins") from error
    return Begin(offset, found.stat.version)


def append(keeper: Keeper, nodes: Sequence[Create], offset: int, token: bytes) -> bool:
    """Creates the nodes of `append_nodes` at an offset where the log ended once. Returns False if it ends later.

    Raises TimedOutError, ZooKeeperError: nothing was appended, or this is unknown by the text.
    """
    may_have_happened = False
    try:
        for _ in keeper.attempts():
            try:
                if may_have_happened and (found := _entry(keeper, offset)) is not None:
                    return found.token == token
                begin = read_begin(keeper)
            except ConnectionLostError:
                continue
            if begin.offset > offset:
                if may_have_happened:
                    raise ZooKeeperError(
                        f"it is unknown whether the records at offset {offset} were appended: "
                        "the connection was lost, and a snapshot has replaced that part of the log meanwhile"
                    )
                return False
            try:
                keeper.commit(Check(LOG, begin.version), *nodes)
                return True
            except ConnectionLostError:
                may_have_happened = True
            except NodeExistsError:
                if not may_have_happened:
                    return False
            except BadVersionError:
                continue  # A snapshot was written just now.
    except TimedOutError as error:
        if may_have_happened:
            raise TimedOutError(f"{error}; it is unknown whether the records were appended") from error
        raise
    raise AssertionError("attempts end with an error")


def read(keeper: Keeper, offset: int, known_end: int) -> ReadRecords:
    """Returns records from `offset` on; `known_end` is an offset at which the log ended once.

    It does not stop between the nodes of one append. Raises LogTruncated, CorruptLogError, ZooKeeperError.
    """
    found: list[tuple[int, bytes]] = []
    next_offset, size, token = offset, 0, b""
    while (entry := patiently(keeper, partial(_entry, keeper, next_offset))) is not None:
        if size >= READ_BYTES and entry.token != token:
            break
        found += entry.records(offset)
        next_offset, token = entry.end_offset, entry.token
        size += len(entry.batch)
    if next_offset == offset:
        if patiently(keeper, lambda: read_begin(keeper)).offset > offset:
            raise LogTruncated(f"the metadata log begins after {offset}")
        if offset < known_end:
            return _read_inside(keeper, offset)
    return ReadRecords(found, next_offset, size)


def _read_inside(keeper: Keeper, offset: int) -> ReadRecords:
    """Returns the rest of the node that has this offset, which is not its first."""
    names = patiently(keeper, lambda: keeper.children(LOG))
    before = [it for it in map(parse_name, names) if it is not None and it < offset]
    entry = patiently(keeper, lambda: _entry(keeper, max(before))) if before else None
    if entry is None or entry.end_offset <= offset:
        raise LogTruncated(f"the metadata log has no {offset}")
    return ReadRecords(list(entry.records(offset)), entry.end_offset, len(entry.batch))


def find_end(keeper: Keeper) -> int:
    """Returns the end offset of the log. Raises CorruptLogError, and the errors of a Keeper."""
    while True:
        begin = read_begin(keeper)
        last = max((it for it in map(parse_name, keeper.children(LOG)) if it is not None), default=-1)
        if last < begin.offset:
            return begin.offset
        if (entry := _entry(keeper, last)) is not None:
            return entry.end_offset


def follow(keeper: Keeper, end_offset: int) -> int:
    """Returns the current end offset of a log that ended at `end_offset` once, and watches for the next append.

    The next append creates the node that is watched. If it was created and removed before, the log begins later.
    """
    while True:
        if (entry := _entry(keeper, end_offset)) is not None:
            end_offset = entry.end_offset
        elif keeper.exists(node_of(end_offset), watch=True) is None:
            begin = read_begin(keeper)
            if begin.offset <= end_offset:
                return end_offset
            end_offset = begin.offset  # A snapshot has replaced the records appended meanwhile.


def remove_before(keeper: Keeper, begin: Begin) -> None:
    """Removes the nodes that the log does not need any more."""
    offsets = [it for it in map(parse_name, patiently(keeper, lambda: keeper.children(LOG))) if it is not None]
    delete_all(keeper, [node_of(it) for it in sorted(offsets) if it < begin.offset])


def delete_all(keeper: Keeper, paths: Sequence[str]) -> None:
    """Deletes nodes without children, some of which may be gone already."""
    for start in range(0, len(paths), DELETES_AT_ONCE):
        some = paths[start : start + DELETES_AT_ONCE]
        if not _deleted(keeper, some):
            for path in some:  # Another node is removing them, too.
                _deleted(keeper, [path])


def _deleted(keeper: Keeper, paths: Sequence[str]) -> bool:
    for _ in keeper.attempts():
        try:
            keeper.commit(*map(Delete, paths))
            return True
        except RefusedError:
            return False
        except ConnectionLostError:
            continue
    raise AssertionError("attempts end with an error")


def _entry(keeper: Keeper, offset: int) -> Entry | None:
    try:
        return Entry.decode(keeper.get(node_of(offset)).data, offset)
    except NoNodeError:
        return None
