"""The pause between retries: Kafka's `ExponentialBackoff`, without randomness.

A pause is twice the one before, up to a limit, and a success resets it. So a condition that passes at once costs little
time, and one that lasts costs little work.
"""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_MS: Final = 100
LONGEST_PAUSE_MS: Final = 5_000

# Computed once: a transaction's retry is scheduled before it is clear that one is needed.
_DOUBLED: Final = tuple(FIRST_PAUSE_MS << doublings for doublings in range(16))
_PAUSES_MS: Final = tuple(it for it in _DOUBLED if it < LONGEST_PAUSE_MS)


def pause_ms(failures: int) -> int:
    """Returns the pause after this number of consecutive failures, which is at least 1."""
    try:
        return _PAUSES_MS[failures - 1]
    except IndexError:
        return LONGEST_PAUSE_MS
