"""Tellers and broker are killed again and again: money is neither made nor lost, and nothing hangs.

`make soak` does the same for longer. KWIRE_BANK_SEED repeats the kills of a run that failed, as far as the system's
scheduling lets them be repeated; KWIRE_BANK_KILLS is their number. By default each way to kill is taken once.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
import pytest

from testkit.kills.bank import cluster, scenario
from testkit.kills.bank.books import Books, Half, Order
from testkit.kills.harness import kills_of_test, run, seed_of_test
from testkit.servers.brokers import IS_CLUSTER, IS_KAFKA, KIND, restartable_broker

FEW = ("a teller that is not dead", "a node in good order", "a node that stands still", "a teller and a node")
FEW_ORDERS = 20, 40
KILLS = kills_of_test("KWIRE_BANK_KILLS", len(scenario.WAYS))
LOOKS_EVERY_S = 10
"""Apache Kafka looks for transactions that have timed out this often by default. In other tests it does so more often.

The first time is so long after a start: until a broker of 4.3.1 has registered, it takes partitions for deleted, and
would end such a transaction without markers, so that they stay unstable.
"""


@pytest.mark.more
@pytest.mark.timeout(120 + 30 * KILLS)
def test_the_sum_of_all_accounts_never_changes(tmp_path: Path) -> None:
    seed = seed_of_test("KWIRE_BANK_SEED")
    of_kafka = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": str(1000 * LOOKS_EVERY_S)}
    with restartable_broker(**of_kafka if IS_KAFKA else {}) as broker:
        bank = scenario.Bank(broker, tmp_path, "bank")
        if IS_CLUSTER:
            bank.ends_within_s, bank.orders_at_once = cluster.ENDS_WITHIN_S, cluster.ORDERS_AT_ONCE
        if IS_KAFKA:
            bank.ends_within_s += LOOKS_EVERY_S
        account = run(bank, kills=KILLS, seed=seed)
    click.echo(account)
    assert account.kills.total() == KILLS
    assert account.orders > 20 * KILLS


@pytest.mark.more
@pytest.mark.skipif(KIND != "kwire", reason="is about kwire alone, whatever KWIRE_COMPAT says")
@pytest.mark.timeout(300)
def test_the_sum_of_all_accounts_never_changes_over_three_nodes(tmp_path: Path) -> None:
    """A few of the ways in which `make soak-cluster-bank` harms tellers and nodes, each once."""
    seed = seed_of_test("KWIRE_BANK_SEED")
    with cluster.three_nodes(tmp_path, "local", seed) as nodes:
        bank = cluster.BankOfNodes(nodes, tmp_path, "bank", only=FEW, orders_at_once=FEW_ORDERS)
        account = run(bank, kills=len(FEW), seed=seed)
    click.echo(account)
    assert account.kills == Counter(FEW)


ORDERS = [Order(0, 1, 2, 50), Order(1, 2, 3, 60), Order(2, 5, 4, 70)]
"""In two places: the first and the third in one."""


def books(*seen: Half) -> Books:
    kept = Books(2)
    for order in ORDERS:
        kept.order(order)
    for now_s, half in enumerate(seen):
        kept.see(Half.of(half.value()), float(now_s))
    return kept


def halves(*orders: Order) -> list[Half]:
    return [half for order in orders for half in order.halves()]


def test_orders_that_were_booked_in_any_order_are_no_complaint() -> None:
    kept = books(*reversed(halves(*ORDERS)))
    kept.check_waits(100.0, 5.0)
    kept.check_at_rest([2, 1])
    kept.check_the_end()
    assert kept.complaints == []
    assert (kept.done, kept.total, kept.longest_wait_s) == (3, 0, 1.0)


def test_a_half_that_waits_too_long_for_the_other_is_a_complaint() -> None:
    kept = books(ORDERS[0].halves()[0])
    kept.check_waits(5.0, 5.0)
    assert kept.complaints == []
    kept.check_waits(5.1, 5.0)
    assert len(kept.complaints) == 1


def test_the_time_without_a_broker_or_a_reader_is_no_wait() -> None:
    kept = books(ORDERS[0].halves()[0])
    kept.restart_waits(20.0)
    kept.check_waits(25.0, 5.0)
    assert kept.complaints == []
    kept.check_waits(25.1, 5.0)
    assert len(kept.complaints) == 1


def test_a_half_without_the_other_changes_the_sum_at_rest() -> None:
    kept = books(ORDERS[0].halves()[0])
    kept.check_at_rest([1, -1])
    assert any("the sum of all accounts is -50" in it for it in kept.complaints)
    assert any("only one half" in it for it in kept.complaints)


def test_an_offset_that_is_committed_without_its_orders_is_a_complaint() -> None:
    kept = books(*halves(ORDERS[0]))
    kept.check_at_rest([1, -1])
    assert kept.complaints == []
    kept.check_at_rest([2, -1])
    assert len(kept.complaints) == 1


def test_orders_that_are_booked_without_their_offset_are_a_complaint() -> None:
    kept = books(*halves(ORDERS[0], ORDERS[1]))
    kept.check_at_rest([1, -1])
    assert len(kept.complaints) == 1


def test_an_order_that_nobody_booked_is_a_complaint_in_the_end() -> None:
    kept = books(*halves(ORDERS[0], ORDERS[2]))
    kept.check_at_rest([2, -1])
    assert kept.complaints == []
    kept.check_the_end()
    assert any("never booked" in it for it in kept.complaints)


def test_a_half_that_is_seen_twice_is_a_complaint() -> None:
    paid, received = ORDERS[0].halves()
    assert len(books(paid, received, paid).complaints) == 1


def test_a_half_of_no_order_is_a_complaint() -> None:
    assert len(books(Half(0, 1, -51), Half(8, 1, -50)).complaints) == 2
