"""The usage of clients, and what is remembered of it."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.quotas import client_quotas
from kwire.quotas.client_quotas import IDLE_MS, Client, ClientQuotas, concerns_clients
from kwire.quotas.mutations import MutationQuota, NoMutationQuota, mutation_quota
from kwire.quotas.rates import Window

ALICE, BOB = Client("alice", "app"), Client("bob", "app")
OF_ALICE = (("user", "alice"),)


def quotas(**values: float) -> ClientQuotas:
    """Makes the quotas of alice."""
    made = ClientQuotas(Window.of(11, 1), Window.of(11, 1), lambda: 0)
    made.follow({OF_ALICE: values})
    return made


def test_nobody_has_to_wait_without_quotas() -> None:
    made = ClientQuotas(Window.of(11, 1), Window.of(11, 1), lambda: 0)
    assert not made.are_set
    assert made.produced.record(ALICE, 1e12, 0) == 0
    assert made.fetched.throttle_before(ALICE, 1e12, 0) == 0
    assert made.fetched.most_at_once(ALICE, 0) is None
    assert len(made.produced) == 0


def test_who_has_a_quota_has_to_wait_and_others_have_not() -> None:
    made = quotas(producer_byte_rate=1000)
    assert made.are_set
    assert made.produced.record(ALICE, 20_000, 0) == 10_000
    assert made.produced.record(BOB, 20_000, 0) == 0
    assert made.fetched.throttle_before(ALICE, 20_000, 0) == 0, "another kind of quota"


def test_clients_that_share_a_quota_share_what_was_taken() -> None:
    made = quotas(producer_byte_rate=1000)
    assert made.produced.record(Client("alice", "a"), 9_000, 0) == 0
    assert made.produced.record(Client("alice", "b"), 9_000, 0) == 8_000


def test_a_quota_that_changes_counts_at_once() -> None:
    made = quotas(producer_byte_rate=1000)
    assert made.produced.record(ALICE, 20_000, 0) == 10_000
    made.follow({OF_ALICE: {"producer_byte_rate": 2000.0}})
    assert made.produced.record(ALICE, 0, 0) == 0
    made.follow({OF_ALICE: {"producer_byte_rate": 500.0}})
    assert made.produced.record(ALICE, 0, 0) == 30_000
    made.follow({})
    assert made.produced.record(ALICE, 0, 0) == 0
    assert not made.are_set


def test_what_is_not_given_is_not_counted() -> None:
    made = quotas(consumer_byte_rate=1000)
    assert made.fetched.record(ALICE, 9_000, 0) == 0
    for _ in range(3):
        assert made.fetched.throttle_before(ALICE, 9_000, 0) == 8_000
    assert made.fetched.throttle_before(ALICE, 1_000, 0) == 0


def test_what_is_always_too_much_is_given_to_who_took_nothing_lately() -> None:
    made = quotas(consumer_byte_rate=1000)
    assert made.fetched.throttle_before(ALICE, 50_000, 0) == 0
    made.fetched.record(ALICE, 50_000, 0)
    assert made.fetched.throttle_before(ALICE, 50_000, 10_999) > 0
    assert made.fetched.throttle_before(ALICE, 50_000, 11_000) == 0


def test_one_answer_may_have_what_a_window_has() -> None:
    assert quotas(consumer_byte_rate=1000).fetched.most_at_once(ALICE, 0) == 10_000


def test_idle_meters_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ClientQuotas(Window.of(11, 1), Window.of(11, 1), lambda: 0)
    made.follow({(("client-id", None),): {"producer_byte_rate": 1.0}})
    for number in range(100):
        made.produced.record(Client("alice", str(number)), 1, number)
    assert len(made.produced) == 100
    made.produced.record(Client("alice", "0"), 1, 1000)
    made.produced.record(Client("alice", "new"), 1, IDLE_MS + 50)
    assert len(made.produced) == 52, "those of 50 to 99, the one that was used again, and the new one"
    monkeypatch.setattr(client_quotas, "MOST_METERS", 10)
    made.produced.record(Client("alice", "newer"), 1, IDLE_MS + 50)
    assert len(made.produced) == 10


def test_a_meter_that_was_idle_starts_over() -> None:
    made = quotas(controller_mutation_rate=1)
    found = made.mutations.find(ALICE, 0)
    assert found is not None
    found[0].take(100_000, 1, 0)
    again = made.mutations.find(ALICE, IDLE_MS)
    assert again is not None
    assert again[0] is found[0]
    last = made.mutations.find(ALICE, 2 * IDLE_MS + 1)
    assert last is not None
    assert last[0] is not found[0]


def test_a_strict_request_gets_what_is_there_and_then_nothing() -> None:
    made = quotas(controller_mutation_rate=1)
    now_ms = [0]
    quota = mutation_quota(made.mutations, ALICE, lambda: now_ms[0], is_strict=True)
    quota.begin()
    quota.take(11)
    quota.take(5)  # there is nothing left, but nothing is owed
    assert quota.throttle_ms == 0
    with pytest.raises(KafkaError) as refused:
        quota.take(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert quota.throttle_ms == 5000
    now_ms[0] = 2000
    assert quota.throttle_ms == 3000
    now_ms[0] = 5000
    quota.take(1)
    assert quota.throttle_ms == 0


def test_an_earlier_request_gets_everything_and_has_to_wait() -> None:
    made = quotas(controller_mutation_rate=1)
    quota = mutation_quota(made.mutations, ALICE, lambda: 0, is_strict=False)
    quota.begin()
    quota.take(11)
    assert quota.throttle_ms == 0
    quota.take(5)
    quota.take(1)
    assert quota.throttle_ms == 6000


def test_a_decision_that_is_made_again_takes_once() -> None:
    made = quotas(controller_mutation_rate=1)
    quota = mutation_quota(made.mutations, ALICE, lambda: 0, is_strict=True)
    assert isinstance(quota, MutationQuota)
    for _ in range(3):
        quota.begin()
        quota.take(10)
    assert quota.bucket.left(1, 0) == 1


def test_a_client_without_a_quota_may_create_what_it_wants() -> None:
    quota = mutation_quota(quotas(controller_mutation_rate=1).mutations, BOB, lambda: 0, is_strict=True)
    assert isinstance(quota, NoMutationQuota)
    quota.begin()
    quota.take(10**9)
    assert quota.throttle_ms == 0


def test_quotas_of_addresses_do_not_concern_clients() -> None:
    assert concerns_clients((("client-id", None), ("user", "alice")))
    assert not concerns_clients((("ip", "127.0.0.1"),))
