"""How long what failed waits for its next try: Kafka's `ExponentialBackoff`, without chance.

A pause is twice the one before, up to a limit, and the first success begins anew. So a condition that passes at once
costs little time, and one that lasts costs little work.
"""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_MS: Final = 100
LONGEST_PAUSE_MS: Final = 5_000

# Worked out once: a transaction has its next try set before it is clear that it needs one.
_DOUBLED: Final = tuple(FIRST_PAUSE_MS << doublings for doublings in range(16))
_PAUSES_MS: Final = tuple(it for it in _DOUBLED if it < LONGEST_PAUSE_MS)


def pause_ms(failures: int) -> int:
    """The pause after so many failures in a row, of which there is at least one."""
    try:
        return _PAUSES_MS[failures - 1]
    except IndexError:
        return LONGEST_PAUSE_MS
