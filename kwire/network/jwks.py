"""Refreshes the keys of a listener's tokens: a worker thread fetches them when `KeyRefresh` is due."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from kwire.config.definition import ConfigError
from kwire.config.oauth import SignedTokenConfig
from kwire.runtime import workers
from kwire.runtime.workers import Worker
from kwire.security.oauth.fetching import KeyFetch, KeysUnavailable
from kwire.security.oauth.refresh import KeyRefresh

log = logging.getLogger(__name__)

FILE_CHECK_INTERVAL_MS: Final = 5_000
"""The maximum interval of checks of a file. Kafka checks it at each login, in the thread that answers the login."""
SPACING_MS: Final = 10_000
"""The minimum time between a fetch and one that an unknown key causes."""
FILE_SPACING_MS: Final = 1_000


class FreshKeys:
    """The keys of one listener. `refresh` has them; `run` refreshes them."""

    def __init__(self, config: SignedTokenConfig, listener: str, fetch: KeyFetch | None = None) -> None:
        self._listener = listener
        self._fetch = fetch or KeyFetch(config.jwks_url, config.tls)
        is_file = self._fetch.is_file
        self.refresh = KeyRefresh(
            min(config.refresh_ms, FILE_CHECK_INTERVAL_MS) if is_file else config.refresh_ms,
            config.retry_backoff_ms,
            max(config.retry_backoff_ms, config.retry_backoff_max_ms),
            FILE_SPACING_MS if is_file else SPACING_MS,
        )
        self._logged_error = ""

    def check(self, now_ms: int) -> None:
        """Reads the keys if they are in a file, before the event loop starts. Raises ConfigError.

        The broker starts even without a response of the server, because that server may need this broker.
        """
        try:
            self._fetch.check()
            if self._fetch.is_file:
                self.refresh.succeeded(self._fetch.fetch(), now_ms)
        except KeysUnavailable as error:
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url of listener {self._listener}: {error}") from None

    async def run(self, monotonic_ms: Callable[[], int]) -> None:
        """Runs until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cut_off_at_the_end)
            while True:
                wanted = trio.Event()
                self.refresh.on_wanted = wanted.set
                wait_ms = self.refresh.due_ms(monotonic_ms()) - monotonic_ms()
                if wait_ms > 0:
                    with trio.move_on_after(wait_ms / 1000):
                        await wanted.wait()
                else:
                    await self._fetch_once(monotonic_ms)

    async def _cut_off_at_the_end(self) -> None:
        """Cancels a fetch at shutdown, so that the broker does not wait for a server that does not respond."""
        try:
            await trio.sleep_forever()
        finally:
            self._fetch.cut_off()

    async def _fetch_once(self, monotonic_ms: Callable[[], int]) -> None:
        refresh = self.refresh
        try:
            keys = await workers.run(Worker.KEYS, self._fetch.fetch)
        except KeysUnavailable as error:
            refresh.failed(str(error), monotonic_ms())
            # A server may be unavailable for a week, so the same error is logged once.
            if str(error) != self._logged_error:
                has_keys = bool(refresh.keys.keys)
                log.warning(
                    "listener %s: the keys of OAUTHBEARER tokens cannot be fetched: %s; %s until they can",
                    self._listener,
                    error,
                    "those of before are used" if has_keys else "no token is accepted",
                )
            self._logged_error = str(error)
        else:
            if self._logged_error or (keys is not None and not refresh.keys.keys):
                log.info("listener %s: the keys of OAUTHBEARER tokens come from %s", self._listener, self._fetch.url)
            self._logged_error = ""
            refresh.succeeded(keys, monotonic_ms())
