"""The letters of a dead-letter topic that were sent already, kept in a compacted topic, kwire-redriven-TOPIC.

Offsets that consumer groups commit would not do. A redrive may take letters in any order, and committed offsets of a
group without members expire after a week.

    key      {"topic_id": "...", "partition": 0, "first_offset": 4096}
    value    {"sent": "0-17,19"}

A record is about the BLOCK offsets from `first_offset` on, and the numbers count from there. It belongs to the topic
with that id: a topic that was deleted and created again starts empty. Records of deleted letters are removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

import attrs
from kwire_protocol.wire import Uuid, uuid_to_text

from kwire.client.cluster import TopicPartition
from kwire.client.errors import ClientError

PREFIX: Final = "kwire-redriven-"
BLOCK: Final = 4096
_RANGE: Final = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?", re.ASCII)

PartitionOffset = tuple[int, int]
"""Partition and offset of a letter."""


@attrs.define(eq=False)
class Redriven:
    """The letters of `topic` that were sent: a bit for each, 1 if it was sent."""

    topic: str
    topic_id: Uuid
    _blocks: dict[PartitionOffset, int] = attrs.field(factory=dict)
    """The bits of each block, by partition and first offset."""
    _foreign: set[bytes] = attrs.field(factory=set)
    """The keys that belong to an earlier topic of the same name."""

    @classmethod
    def of(cls, topic: str, topic_id: Uuid, values: Mapping[bytes, bytes | None]) -> Redriven:
        """Reads the records of the state topic. Raises ClientError for a record that no redrive has written."""
        it = cls(topic, topic_id)
        for key, value in values.items():
            if value is None:
                continue
            try:
                fields = json.loads(key)
                block = int(fields["partition"]), int(fields["first_offset"])
                is_own = fields["topic_id"] == uuid_to_text(topic_id)
                bits = _bits(json.loads(value)["sent"])
                if key != it._key(block) and is_own:
                    raise ValueError
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                raise ClientError(
                    f"topic {state_topic_of(topic)} holds what was sent of {topic}, but has a record that no redrive "
                    "has written; without that topic, all letters count as not sent"
                ) from None
            if is_own:
                it._blocks[block] = bits
            else:
                it._foreign.add(key)
        return it

    def __contains__(self, letter: PartitionOffset) -> bool:
        block, bit = _split(letter)
        return bool(self._blocks.get(block, 0) >> bit & 1)

    def drop_stale(self, starts: Mapping[int, int]) -> set[bytes]:
        """Removes letters that no longer exist, by the first offsets of all partitions. Returns the keys to delete."""
        old = {block for block in self._blocks if block[1] + BLOCK <= starts.get(block[0], 0)}
        keys = {*self._foreign, *map(self._key, old)}
        self._foreign.clear()
        for block in old:
            del self._blocks[block]
        return keys

    def adding(self, letters: Iterable[PartitionOffset]) -> dict[PartitionOffset, int]:
        """Returns the changed blocks, with the bits of these letters set."""
        changed: dict[PartitionOffset, int] = {}
        for letter in letters:
            block, bit = _split(letter)
            changed[block] = changed.get(block, self._blocks.get(block, 0)) | 1 << bit
        return changed

    def encode(self, blocks: Mapping[PartitionOffset, int]) -> dict[bytes, bytes]:
        """Returns the keys and values of records for the state topic."""
        return {self._key(block): json.dumps({"sent": _ranges(bits)}).encode() for block, bits in blocks.items()}

    def added(self, blocks: Mapping[PartitionOffset, int]) -> None:
        """Takes over blocks that were written to the state topic."""
        self._blocks |= blocks

    def _key(self, block: PartitionOffset) -> bytes:
        fields = {"topic_id": uuid_to_text(self.topic_id), "partition": block[0], "first_offset": block[1]}
        return json.dumps(fields).encode()


def state_topic_of(topic: str) -> str:
    """Returns the name of the state topic. Raises ClientError if it would be too long."""
    name = PREFIX + topic
    if len(name) > 249:
        raise ClientError(
            f"what was sent of topic {topic} is kept in topic {name}, but a name has at most 249 characters"
        )
    return name


def partition_offset(at: TopicPartition, offset: int) -> PartitionOffset:
    return at.partition, offset


def _split(letter: PartitionOffset) -> tuple[PartitionOffset, int]:
    partition, offset = letter
    bit = offset % BLOCK
    return (partition, offset - bit), bit


def _ranges(bits: int) -> str:
    """Returns the numbers of the bits that are set, such as 0-17,19."""
    text = f"{bits:b}"[::-1]
    found = ((it.start(), it.end() - 1) for it in re.finditer("1+", text))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def _bits(ranges: str) -> int:
    """Parses what `_ranges` returns. Raises ValueError, and other errors if the value is no text."""
    bits = 0
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise ValueError
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < BLOCK:
            raise ValueError
        bits |= (1 << last - first + 1) - 1 << first
    return bits
