"""Serves the metrics over HTTP, to Prometheus and other clients, in the formats of prometheus_client.

The connection is accepted in the event loop, which reads the metrics for it at once, in slices. A worker thread gets
the socket and the values, reads the request, and writes the response that prometheus_client makes. So no thread uses
the objects of the loop, and neither waits for the other.

A connection is for one request. MAX_AT_ONCE are served at a time, the others wait in the listener's backlog. A
connection without a complete response after TIMEOUT_S is closed, even if the client still sends. The metrics are read
at most once in FRESH_S, regardless of the number of requests.

There is no authentication: by default the endpoint is off, and `kwire.node.running` warns if it is not on loopback.
"""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Final

import trio
from prometheus_client import make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric as PrometheusMetric
from prometheus_client.registry import Collector, CollectorRegistry

from kwire.metrics import reading
from kwire.metrics.metric import Family, MetricType, Times
from kwire.runtime import workers
from kwire.runtime.workers import Worker

log = logging.getLogger(__name__)

MAX_AT_ONCE: Final = 2
TIMEOUT_S: Final = 5.0
FRESH_S: Final = 0.2
"""The maximum age of the metrics in a response. Reading ten thousand groups takes 5 ms of the loop's time."""
RETRY_ACCEPT_S: Final = 1.0
"""The delay before accepting is retried when file descriptors have run out."""


class MetricsEndpoint:
    """The HTTP server. `sock` is a non-blocking listening socket; the caller closes it after `run`."""

    def __init__(self, services: reading.Services, sock: socket.socket) -> None:
        self._services = services
        self._sock = sock
        self._room = trio.Semaphore(MAX_AT_ONCE)
        self._reading = trio.Lock()
        self._families: list[Family] = []
        self._read_at = -math.inf
        self._limiter = trio.CapacityLimiter(MAX_AT_ONCE)

    async def run(self) -> None:
        """Serves requests until it is cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._room.acquire()
                nursery.start_soon(self._answer, await self._accept())

    async def _accept(self) -> socket.socket:
        while True:
            await trio.lowlevel.wait_readable(self._sock)
            try:
                return self._sock.accept()[0]
            except BlockingIOError:
                pass
            except OSError as error:
                log.error("cannot accept a connection for metrics: %s", error.strerror)
                await trio.sleep(RETRY_ACCEPT_S)

    async def _answer(self, sock: socket.socket) -> None:
        try:
            with sock:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_cut_off, sock)
                    families = await self._read()
                    await workers.run(Worker.METRICS, answer, sock, families, limiter=self._limiter)
                    nursery.cancel_scope.cancel()
        except Exception:
            log.exception("metrics could not be read")
        finally:
            self._room.release()

    async def _read(self) -> list[Family]:
        async with self._reading:
            if trio.current_time() - self._read_at > FRESH_S:
                self._families = await reading.read(self._services)
                self._read_at = trio.current_time()
            return self._families


async def _cut_off(sock: socket.socket) -> None:
    """Shuts the socket down, which ends its thread's work, after the timeout or when the broker stops."""
    try:
        await trio.sleep(TIMEOUT_S)
    finally:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def answer(sock: socket.socket, families: list[Family]) -> None:
    """Reads one request from the socket, and responds with the metrics. Runs in a worker thread."""
    with suppress(OSError):  # The client is gone, or was cut off.
        _Request(sock, families)
        sock.shutdown(socket.SHUT_WR)


class _Request(BaseHTTPRequestHandler):
    """One request. Its constructor does all of the work, as in any request handler of Python's http.server.

    prometheus_client's own handler sends no Content-Length. Then the partial response of a broker that is killed looks
    complete, and a scrape loses metrics without an error.
    """

    server_version = "kwire"
    sys_version = ""

    def __init__(self, sock: socket.socket, families: list[Family]) -> None:
        registry = CollectorRegistry()
        registry.register(_Families(families))
        self._app = make_wsgi_app(registry)
        super().__init__(sock, ("", 0), None)  # type: ignore[arg-type] # There is no server, and none is needed.

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "HTTP_ACCEPT": self.headers.get("Accept"),
            "HTTP_ACCEPT_ENCODING": self.headers.get("Accept-Encoding"),
        }
        body = b"".join(self._app(environ, self._start))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _start(self, status: str, headers: list[tuple[str, str]]) -> None:
        self.send_response(int(status.split()[0]))
        for name, value in headers:
            self.send_header(name, value)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of http.server's argument
        """Logs nothing, because there are many scrapes."""


class _Families(Collector):
    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[PrometheusMetric]:
        return map(exposed, self._families)

    def describe(self) -> Iterator[PrometheusMetric]:
        """Returns the metrics without values, so that a request can select some by name."""
        return (exposed(Family(family.metric, ())) for family in self._families)


def exposed(family: Family) -> PrometheusMetric:
    """Returns the family as an object of prometheus_client."""
    metric = family.metric
    match metric.type:
        case MetricType.COUNTER:
            counter = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
            for labels, value in family.samples:
                assert not isinstance(value, Times)
                counter.add_metric(labels, value)
            return counter
        case MetricType.GAUGE:
            gauge = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            for labels, value in family.samples:
                assert not isinstance(value, Times)
                gauge.add_metric(labels, value)
            return gauge
        case MetricType.SUMMARY:
            summary = SummaryMetricFamily(metric.name, metric.help, labels=metric.labels)
            for labels, value in family.samples:
                assert isinstance(value, Times)
                summary.add_metric(labels, value.count, value.sum_s)
            return summary
