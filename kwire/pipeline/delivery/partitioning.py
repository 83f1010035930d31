"""Chooses a record's partition: by its key, like Kafka's Java producer, so that keys stay together.

A record without a key may go anywhere. Those go to one partition until a batch for it is full, then to the next: large
batches cost less than many small ones (KIP-480).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_UINT32: Final = (1 << 32) - 1
_KEYS_REMEMBERED: Final = 1 << 16


@lru_cache(_KEYS_REMEMBERED)
def partition_of(key: bytes, count: int) -> int:
    """The partition of a key among `count`."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def murmur2(data: bytes) -> int:
    """The 32-bit hash that Kafka's clients share, unsigned."""
    size = len(data)
    h = _SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _UINT32
        k = (k ^ k >> 24) * _M & _UINT32
        h = (h * _M & _UINT32) ^ k
    if size > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _UINT32
    h = (h ^ h >> 13) * _M & _UINT32
    return h ^ h >> 15
