"""Scrapes the broker's metrics again and again, which the broker counts in slices between all that changes them."""

from __future__ import annotations

import http.client
import time
import urllib.request

import attrs

from kwire.metrics.reading import METRICS
from testkit.everything_at_once.worker import Reporter
from testkit.raw.scrapes import GROUP, Values, parsed

_STEP_S = 0.5
_PAUSE_S = 0.03
_TIMEOUT_S = 10.0


@attrs.frozen
class Order:
    url: str

    def __call__(self, reporter: Reporter) -> Scraper:
        return Scraper(self.url, reporter)


@attrs.define(eq=False)
class Scraper:
    url: str
    reporter: Reporter

    def step(self) -> None:
        until = time.monotonic() + _STEP_S
        while time.monotonic() < until and not self.reporter.is_stopped:
            try:
                with urllib.request.urlopen(self.url, timeout=_TIMEOUT_S) as answer:
                    text = answer.read().decode()
            except (OSError, http.client.HTTPException):
                pass  # The broker was killed.
            else:
                self._check(text)
            time.sleep(_PAUSE_S)

    def _check(self, text: str) -> None:
        missing = [it.name for it in METRICS if f"\n# TYPE {it.name} " not in text]
        if missing:
            self.reporter.complain(f"the metrics lack {missing}")
        values = parsed(text)
        wrong = {name: value for name, value in values.items() if value < 0}
        if wrong:
            self.reporter.complain(f"metrics are negative: {wrong}")
        if not _adds_up(values, "consumer"):
            self.reporter.complain("groups by state are not as many as groups")
        self.reporter.count("answers with metrics")

    def settle(self) -> None:
        pass

    judge = leave = close = settle


def _adds_up(values: Values, kind: str) -> bool:
    states = sum(value for name, value in values.items() if name.startswith(f"{GROUP}{kind}_group_count{{"))
    return states == values[f'{GROUP}group_count{{protocol="{kind}"}}']
