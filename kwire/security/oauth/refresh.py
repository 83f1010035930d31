"""The schedule by which the keys of a listener's tokens are fetched: a state machine without clock, network or thread.

    at the start; then every refresh_ms (sasl.oauthbearer.jwks.endpoint.refresh.ms)
    sooner, if a token has an unknown key id, which may be that of a new key: once in UNKNOWN_KEY_RETRY_MS for each id,
        of which 16 are remembered, as in Kafka's RefreshingHttpsJwks; and at most once in `spacing_ms` for all of
        them, since anybody can send a token
    after a failure, with pauses from backoff_ms to backoff_max_ms, each twice the one before, until it succeeds

While it fails, the keys of the last success stay in use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from kwire.backoff import Backoff
from kwire.security.oauth.keys import KeySet

MAX_UNKNOWN: Final = 16
MAX_KID_LENGTH: Final = 1000
UNKNOWN_KEY_RETRY_MS: Final = 60_000


@attrs.define(eq=False)
class KeyRefresh:
    """A `KeyHolder`. All times are milliseconds of one monotonic clock.

    The caller that fetches calls `due_ms`, waits for that time or for `on_wanted`, fetches, and calls `succeeded` or
    `failed`.
    """

    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int
    spacing_ms: int
    keys: KeySet = attrs.field(factory=KeySet)
    trouble: str | None = "they have not been fetched yet"
    on_wanted: Callable[[], None] | None = None
    """Called when a token has an unknown key id, which may change the time of the next fetch."""
    _next_ms: int | None = None
    _failures: int = 0
    _fetched_ms: int | None = None
    """The time at which the last fetch ended."""
    _wanted: dict[str, None] = attrs.field(factory=dict)
    """The unknown key ids of tokens since `due_ms` was called."""
    _requested_at_ms: dict[str, int] = attrs.field(factory=dict)
    """The time of the last fetch for each of the latest unknown key ids, the most recent at the end."""

    def note_unknown(self, kid: str | None) -> None:
        """See `KeyHolder`. A token without a key id may match any key, so it does not cause a fetch."""
        if kid is None or len(kid) > MAX_KID_LENGTH or len(self._wanted) >= MAX_UNKNOWN:
            return
        self._wanted[kid] = None
        if self.on_wanted is not None:
            self.on_wanted()

    def due_ms(self, now_ms: int) -> int:
        """Returns the time of the next fetch, which is due at once if it is not later than `now_ms`."""
        if self._next_ms is None:
            self._next_ms = now_ms
        if self._take_wanted(now_ms):
            soon_ms = now_ms if self._fetched_ms is None else max(now_ms, self._fetched_ms + self.spacing_ms)
            self._next_ms = min(self._next_ms, soon_ms)
        return self._next_ms

    def _take_wanted(self, now_ms: int) -> bool:
        """Returns True if one of the unknown key ids justifies a fetch. Clears them."""
        is_wanted = False
        for kid in self._wanted:
            requested_at_ms = self._requested_at_ms.get(kid)
            if self._failures == 0 and (requested_at_ms is None or now_ms - requested_at_ms >= UNKNOWN_KEY_RETRY_MS):
                self._requested_at_ms.pop(kid, None)
                self._requested_at_ms[kid] = now_ms
                is_wanted = True
        self._wanted.clear()
        while len(self._requested_at_ms) > MAX_UNKNOWN:
            del self._requested_at_ms[next(iter(self._requested_at_ms))]
        return is_wanted

    def succeeded(self, keys: KeySet | None, now_ms: int) -> None:
        """Takes the result of a fetch. `keys` is None if they have not changed."""
        if keys is not None:
            self.keys = keys
            for key in keys.keys:
                self._requested_at_ms.pop(key.kid or "", None)
        self.trouble = None
        self._failures = 0
        self._fetched_ms = now_ms
        self._next_ms = now_ms + self.refresh_ms

    def failed(self, reason: str, now_ms: int) -> None:
        if not self.keys.keys:
            self.trouble = reason
        self._failures += 1
        self._fetched_ms = now_ms
        self._next_ms = now_ms + Backoff(self.backoff_ms, self.backoff_max_ms).after(self._failures)
