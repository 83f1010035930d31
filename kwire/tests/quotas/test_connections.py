"""The limits on the number of connections and on their rate."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs
import pytest

from kwire.quotas import connections
from kwire.quotas.connections import IDLE_MS, ConnectionLimits, ConnectionQuotas, canonical
from kwire.quotas.rates import Window

MANY = 2**31 - 1
UNLIMITED = ConnectionLimits(MANY, {}, MANY, {})
A, B = "10.0.0.1", "10.0.0.2"


def quotas(limits: ConnectionLimits = UNLIMITED, rates: Mapping[str | None, float] | None = None) -> ConnectionQuotas:
    made = ConnectionQuotas(Window.of(11, 1), lambda: limits, "BROKERS")
    made.follow({(("ip", address),): {"connection_creation_rate": rate} for address, rate in (rates or {}).items()})
    return made


def test_a_listener_pauses_for_a_sample_at_most() -> None:
    made = quotas(attrs.evolve(UNLIMITED, rate=1))
    assert [made.pause_ms("CLIENTS", 0) for _ in range(10)] == [0] * 10
    assert made.pause_ms("CLIENTS", 0) == 1000
    assert made.pause_ms("CLIENTS", 0) == 1000
    assert made.pause_ms("CLIENTS", 20_000) == 0


def test_listeners_share_the_rate_of_the_broker_and_brokers_do_not_wait_for_clients() -> None:
    made = quotas(attrs.evolve(UNLIMITED, rate=1, rates_of_listeners={"BROKERS": MANY, "A": MANY, "B": MANY}))
    for _ in range(10):
        made.pause_ms("A", 0)
        made.pause_ms("BROKERS", 0)
    assert made.pause_ms("BROKERS", 0) == 0
    assert made.pause_ms("B", 0) == 1000


def test_a_listener_may_have_a_rate_of_its_own() -> None:
    made = quotas(attrs.evolve(UNLIMITED, rates_of_listeners={"A": 1}))
    for _ in range(10):
        assert (made.pause_ms("A", 0), made.pause_ms("B", 0)) == (0, 0)
    assert (made.pause_ms("A", 0), made.pause_ms("B", 0)) == (1000, 0)


def test_an_address_that_comes_too_often_is_refused_and_others_are_not() -> None:
    made = quotas(rates={A: 1})
    assert [made.refused_for_ms("L", A, 0) for _ in range(11)] == [0] * 10 + [1000]
    assert made.refused_for_ms("L", B, 0) == 0
    assert [made.refused_for_ms("L", A, 2000) for _ in range(50)] == [1000] * 50
    assert made.refused_for_ms("L", A, 11_000) == 0, "what was refused does not count"


def test_what_is_refused_does_not_count_for_its_listener() -> None:
    made = quotas(attrs.evolve(UNLIMITED, rate=2), {A: 1})
    for _ in range(15):
        made.pause_ms("L", 0)
        made.refused_for_ms("L", A, 0)
    assert [made.pause_ms("L", 0) for _ in range(10)] == [0] * 10
    assert made.pause_ms("L", 0) > 0


def test_addresses_without_a_quota_of_their_own_have_the_default_one_each() -> None:
    made = quotas(rates={None: 1, A: 1000})
    for _ in range(10):
        assert made.refused_for_ms("L", B, 0) == 0
    assert made.refused_for_ms("L", B, 0) > 0
    assert made.refused_for_ms("L", "10.0.0.3", 0) == 0
    assert [made.refused_for_ms("L", A, 0) for _ in range(100)] == [0] * 100


@pytest.mark.parametrize("rate", [math.nan, math.inf])
def test_a_rate_without_a_limit(rate: float) -> None:
    made = quotas(rates={None: 1, A: rate})
    assert [made.refused_for_ms("L", A, 0) for _ in range(100)] == [0] * 100
    assert len(made._addresses) == 0, "there is nothing to remember"


def test_an_address_pauses_for_a_sample_at_most() -> None:
    made = quotas(rates={A: 1000})
    for _ in range(100):
        made.refused_for_ms("L", A, 0)
    made.follow({(("ip", A),): {"connection_creation_rate": 1.0}})
    assert made.refused_for_ms("L", A, 0) == 1000


def test_the_number_of_connections_may_differ_for_addresses() -> None:
    made = quotas(attrs.evolve(UNLIMITED, per_address=5, of_addresses={A: 7}))
    assert (made.most_of(A), made.most_of(B), made.most_of(f"::ffff:{A}")) == (7, 5, 7)


def test_rates_of_addresses_that_do_not_come_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    made = quotas(rates={None: 1})
    for number in range(100):
        made.refused_for_ms("L", f"10.0.1.{number}", number)
    made.refused_for_ms("L", B, IDLE_MS + 50)
    assert len(made._addresses) == 51
    monkeypatch.setattr(connections, "MOST_ADDRESSES", 10)
    made.refused_for_ms("L", A, IDLE_MS + 50)
    assert len(made._addresses) == 10


def test_addresses_are_the_same_however_they_are_written() -> None:
    assert canonical("::FFFF:10.0.0.1") == canonical("10.0.0.1") == A
    assert canonical("2001:DB8::0:1") == "2001:db8::1"
    assert canonical("some.host") == "some.host"
