"""The latest offset of each key in a stretch of a log, within a bound of memory: Kafka's `SkimpyOffsetMap`.

Keys of up to 32 bytes are kept as they are; longer ones by a hash (BLAKE2b of 33 bytes, which no short key can be taken
for), so that the bound does not depend on them.
"""

from __future__ import annotations

from hashlib import blake2b

MOST_KEPT_BYTES = 32
_DIGEST_BYTES = MOST_KEPT_BYTES + 1

BYTES_OF_AN_ENTRY = 200
"""What a key costs in a dict that has just grown, its own bytes and its offset included."""

NOT_FOUND = -1


class KeyMap:
    """Of the offsets from `start_offset` up to `end_offset`: keys of records beyond are not known."""

    def __init__(self, max_bytes: int, start_offset: int) -> None:
        self.start_offset = self.end_offset = start_offset
        self._max_entries = max(max_bytes // BYTES_OF_AN_ENTRY, 1)
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Notes a record; offsets must come in ascending order. False, and nothing noted, when there is no room."""
        if len(key) > MOST_KEPT_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        if len(self._offsets) >= self._max_entries and key not in self._offsets:
            return False
        self._offsets[key] = offset
        return True

    def latest(self, key: bytes) -> int:
        """NOT_FOUND for a key that the stretch does not have."""
        if len(key) > MOST_KEPT_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(key, NOT_FOUND)
