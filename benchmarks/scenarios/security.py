"""The cost of TLS and logins for a broker.

Requests over TLS are those of raw.py, over connections that encipher and decipher as much as the broker does
(`load/tls.py`): the load is no cheaper than the broker, so look at CPU first. The same without TLS is measured right
after it, in the same round.
"""

from __future__ import annotations

import time

from kwire_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)

from benchmarks.bench import LEAD_S, Bench, Figures, Round, latencies, scenario, work
from benchmarks.brokers.listeners import SASL_PLAINTEXT, SSL
from benchmarks.load.answers import BadAnswer, Check, check_produce
from benchmarks.load.connection import Connection
from benchmarks.load.replay import Played
from benchmarks.load.visits import NewVisit, ScramVisit, Visited, Visitors, plain_visit, tls_visit
from benchmarks.scenarios.raw import PARTITIONS, check_fetches, fetches, fill, large_produce
from kwire.security.sasl.scram import MIN_ITERATIONS, SCRAM_SHA_256

CONNECTIONS, DEPTH = 4, 2
VISITORS = 8
USER, PASSWORD, SALT = "bench", "bench-secret", b"0123456789abcdefghij"

_KNOWN_WITHIN_S = 30.0
_RETRY_PAUSE_S = 0.05


@scenario("tls-produce", "raw-produce over TLS 1.3, and without it in the same round", more_listeners=[SSL])
def tls_produce(bench: Bench) -> Round:
    bench.create({"t": PARTITIONS})
    requests, check = large_produce(), check_produce("t", PARTITIONS)
    for tls in (False, True):  # see raw-produce
        bench.warm_produce("t", PARTITIONS, share=0.4, tls=tls)
        bench.warm(requests, check, share=0.1, tls=tls)
    bench.drop_cached()

    def measure() -> Figures:
        figures: Figures = {}
        for tls in (True, False):
            played = _replay(bench, requests, check, tls=tls)
            bench.drop_cached()
            figures |= _figures(played, played.requests * len(requests[0]), tls=tls)
        return figures

    return measure


@scenario("tls-fetch", "raw-fetch over TLS 1.3, and without it in the same round", more_listeners=[SSL])
def tls_fetch(bench: Bench) -> Round:
    requests, check = fetches(fill(bench)), check_fetches()
    for tls in (False, True):
        bench.warm(requests, check, share=0.5, tls=tls)

    def measure() -> Figures:
        figures: Figures = {}
        for tls in (True, False):
            played = _replay(bench, requests, check, tls=tls)
            figures |= _figures(played, played.bytes_in, tls=tls)
        return figures

    return measure


@scenario(
    "tls-handshakes",
    f"{VISITORS} at once connect with a full handshake (TLS 1.3, ECDSA), ask for ApiVersions and go; "
    "and the same without TLS",
    more_listeners=[SSL],
)
def tls_handshakes(bench: Bench) -> Round:
    return _visits(bench, SSL, tls_visit, "handshakes_per_s", "cpu_ms_per_handshake")


@scenario(
    "scram-logins",
    f"{VISITORS} at once connect, log in with SCRAM-SHA-256 and go; and connections that ask for ApiVersions instead",
    more_listeners=[SASL_PLAINTEXT],
)
def scram_logins(bench: Bench) -> Round:
    _add_user(bench)
    return _visits(bench, SASL_PLAINTEXT, ScramVisit(USER, PASSWORD), "logins_per_s", "cpu_ms_per_login")


def _replay(bench: Bench, requests: list[bytes], check: Check, *, tls: bool) -> Played:
    return bench.replay(requests, check, connections=CONNECTIONS, depth=DEPTH, tls=tls)


def _figures(played: Played, size_bytes: int, *, tls: bool) -> Figures:
    figures = work(played.usage, requests=played.requests, size_bytes=size_bytes)
    if tls:
        return figures | latencies(played.latencies_ns)
    return {f"plain_{name}": figures[name] for name in ("mib_per_s", "cpu_s_per_gib")}


def _visits(bench: Bench, listener: str, new_visit: NewVisit, rate: str, cost: str) -> Round:
    options = bench.options
    visitors = Visitors(bench.broker.port_of(listener), new_visit, at_once=VISITORS)
    plain_visitors = Visitors(bench.broker.port, plain_visit, at_once=VISITORS)
    for it, share in ((plain_visitors, 0.3), (visitors, 0.7)):
        bench.keep.callback(it.close)
        it.warm(bench.meter, cpu_s=options.warm_cpu_s * share, most_s=options.warm_s * share)

    def visit(these: Visitors) -> Visited:
        return these.measure(bench.meter, lead_s=min(LEAD_S, options.run_s), run_s=options.run_s)

    def measure() -> Figures:
        visited, plain = visit(visitors), visit(plain_visitors)
        return {
            **work(visited.usage),
            rate: visited.visits / visited.usage.seconds,
            cost: visited.usage.cpu_s * 1e3 / visited.visits,
            "plain_cpu_ms_per_visit": plain.usage.cpu_s * 1e3 / plain.visits,
            **latencies(visited.latencies_ns),
        }

    return measure


def _add_user(bench: Bench) -> None:
    """Adds a user, and returns when it can log in, which is a moment after the broker's answer."""
    mechanism = SCRAM_SHA_256
    salted = mechanism.salted_password(PASSWORD, SALT, MIN_ITERATIONS)
    upsertion = ScramCredentialUpsertion(USER, mechanism.number, MIN_ITERATIONS, SALT, salted)
    with Connection(bench.broker.port) as connection:
        for it in connection.request(AlterUserScramCredentialsRequest(upsertions=[upsertion])).results:
            if it.error_code:
                raise BadAnswer(f"AlterUserScramCredentials: {it.error_code} {it.error_message}")
    deadline_s = time.monotonic() + _KNOWN_WITHIN_S
    while True:
        visitors = Visitors(bench.broker.port_of(SASL_PLAINTEXT), ScramVisit(USER, PASSWORD), at_once=1)
        try:
            visitors.once()
        except BadAnswer:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_RETRY_PAUSE_S)
        else:
            return
        finally:
            visitors.close()
