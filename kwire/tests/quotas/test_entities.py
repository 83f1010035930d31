"""The choice of a client's quota: eight steps, and the clients that share it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.metadata.access import QuotaEntity
from kwire.quotas.entities import QuotasOfClients

KEY = "producer_byte_rate"
EIGHT: list[tuple[QuotaEntity, tuple[str, str]]] = [
    ((("client-id", "app"), ("user", "alice")), ("alice", "app")),
    ((("client-id", None), ("user", "alice")), ("alice", "app")),
    ((("user", "alice"),), ("alice", "")),
    ((("client-id", "app"), ("user", None)), ("alice", "app")),
    ((("client-id", None), ("user", None)), ("alice", "app")),
    ((("user", None),), ("alice", "")),
    ((("client-id", "app"),), ("", "app")),
    ((("client-id", None),), ("", "app")),
]
"""The entities that have to do with alice's app, the strongest first, and who shares the quota of each."""


def read(*quotas: tuple[QuotaEntity, float]) -> QuotasOfClients:
    return QuotasOfClients.read({entity: {KEY: bound, "request_percentage": 1.0} for entity, bound in quotas}, KEY)


@pytest.mark.parametrize("step", range(8))
def test_the_more_special_quota_counts(step: int) -> None:
    entity, sharers = EIGHT[step]
    weaker = [(it, 1000.0) for it, _ in EIGHT[step + 1 :]]
    assert read((entity, 7.0), *weaker).find("alice", "app") == (sharers, 7.0)


@given(st.sets(st.sampled_from(range(8))))
def test_the_first_of_the_eight_that_is_there_counts(steps: set[int]) -> None:
    quotas = read(*((EIGHT[it][0], float(it + 1)) for it in steps))
    expected = (EIGHT[min(steps)][1], float(min(steps) + 1)) if steps else None
    assert quotas.find("alice", "app") == expected
    assert bool(quotas) == bool(steps)


def test_a_quota_of_others_does_not_count() -> None:
    others = read(
        ((("client-id", "other"), ("user", "alice")), 1.0),
        ((("client-id", "app"), ("user", "bob")), 2.0),
        ((("user", "bob"),), 3.0),
        ((("client-id", "other"),), 4.0),
    )
    assert others.find("alice", "app") is None


def test_client_ids_of_a_user_share_its_quota_and_users_share_that_of_a_client_id() -> None:
    of_user = read(((("user", None),), 5.0))
    assert of_user.find("alice", "a") == of_user.find("alice", "b") == (("alice", ""), 5.0)
    assert of_user.find("bob", "a") == (("bob", ""), 5.0)
    of_client = read(((("client-id", None),), 5.0))
    assert of_client.find("alice", "a") == of_client.find("bob", "a") == (("", "a"), 5.0)
    of_pair = read(((("client-id", None), ("user", None)), 5.0))
    assert len({str(of_pair.find(*it)) for it in (("alice", "a"), ("alice", "b"), ("bob", "a"))}) == 3


def test_a_client_without_an_id_has_no_part_in_what_is_for_any_id() -> None:
    assert read(((("client-id", None),), 5.0)).find("alice", "") is None
    pairs = read(((("client-id", None), ("user", None)), 5.0), ((("user", "alice"),), 6.0))
    assert pairs.find("alice", "") == (("alice", ""), 6.0)


@pytest.mark.parametrize("bound", [math.inf, math.nan])
def test_a_quota_without_a_limit_hides_weaker_ones(bound: float) -> None:
    quotas = read(((("user", "alice"),), bound), ((("user", None),), 5.0))
    assert quotas.find("alice", "app") is None
    assert quotas.find("bob", "app") == (("bob", ""), 5.0)


def test_quotas_of_addresses_and_other_keys_are_for_nobody_here() -> None:
    assert not QuotasOfClients.read({(("ip", None),): {KEY: 1.0}, (("user", "alice"),): {"other": 1.0}}, KEY)
