"""When the keys of a listener's tokens are fetched: a state machine without clock, network or thread.

    at the start; then every refresh_ms (sasl.oauthbearer.jwks.endpoint.refresh.ms)
    sooner, if a token names a key that is not known: it may be a new one. Once in ASK_AGAIN_MS for each name, of which
        16 are remembered, as in Kafka's RefreshingHttpsJwks; and at most once in `spacing_ms` for all of them, since
        anybody can send a token
    after a failure, with pauses from backoff_ms to backoff_max_ms, each twice the one before, until it succeeds

While it fails, the keys of the last success stay in use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from kwire.security.oauth.keys import KeySet

MAX_UNKNOWN: Final = 16
MAX_KID_LENGTH: Final = 1000
ASK_AGAIN_MS: Final = 60_000


def _nobody() -> None: ...


@attrs.define(eq=False)
class KeyRefresh:
    """A `KeyHolder`. All times are milliseconds of one clock that never goes backwards.

    Whoever fetches calls `due_ms`, waits for that time or for `on_wanted`, fetches, and tells `succeeded` or `failed`.
    """

    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int
    spacing_ms: int
    keys: KeySet = attrs.field(factory=KeySet)
    trouble: str | None = "they have not been fetched yet"
    on_wanted: Callable[[], None] = _nobody
    """Called when a token names an unknown key: the time of the next fetch may be another now."""
    _next_ms: int | None = None
    _failures: int = 0
    _fetched_ms: int | None = None
    """When the last fetch ended."""
    _wanted: dict[str, None] = attrs.field(factory=dict)
    """Unknown keys that were named since `due_ms` was called."""
    _asked_ms: dict[str, int] = attrs.field(factory=dict)
    """When the unknown keys were asked for that were asked for last, the latest at the end."""

    def note_unknown(self, kid: str | None) -> None:
        """See `KeyHolder`. A token without the name of a key fits any, so it asks for none."""
        if kid is None or len(kid) > MAX_KID_LENGTH or len(self._wanted) >= MAX_UNKNOWN:
            return
        self._wanted[kid] = None
        self.on_wanted()

    def due_ms(self, now_ms: int) -> int:
        """When to fetch next; not later than `now_ms` means at once."""
        if self._next_ms is None:
            self._next_ms = now_ms
        if self._take_wanted(now_ms):
            soon_ms = now_ms if self._fetched_ms is None else max(now_ms, self._fetched_ms + self.spacing_ms)
            self._next_ms = min(self._next_ms, soon_ms)
        return self._next_ms

    def _take_wanted(self, now_ms: int) -> bool:
        """Whether one of the keys that were named is worth a fetch."""
        is_wanted = False
        for kid in self._wanted:
            asked_ms = self._asked_ms.get(kid)
            if self._failures == 0 and (asked_ms is None or now_ms - asked_ms >= ASK_AGAIN_MS):
                self._asked_ms.pop(kid, None)
                self._asked_ms[kid] = now_ms
                is_wanted = True
        self._wanted.clear()
        while len(self._asked_ms) > MAX_UNKNOWN:
            del self._asked_ms[next(iter(self._asked_ms))]
        return is_wanted

    def succeeded(self, keys: KeySet | None, now_ms: int) -> None:
        """`keys` is None if they are still the same."""
        if keys is not None:
            self.keys = keys
            for key in keys.keys:
                self._asked_ms.pop(key.kid or "", None)
        self.trouble = None
        self._failures = 0
        self._fetched_ms = now_ms
        self._next_ms = now_ms + self.refresh_ms

    def failed(self, reason: str, now_ms: int) -> None:
        if not self.keys.keys:
            self.trouble = reason
        pause_ms = min(self.backoff_max_ms, self.backoff_ms << min(self._failures, 30))
        self._failures += 1
        self._fetched_ms = now_ms
        self._next_ms = now_ms + pause_ms
