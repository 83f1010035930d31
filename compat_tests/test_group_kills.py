"""Members of both protocols in one group, killed again and again with their broker: no record is skipped.

`make soak` does the same for longer. KWIRE_GROUPS_SEED repeats the kills of a run that failed, as far as the system's
scheduling lets them be repeated; KWIRE_GROUPS_KILLS tells how many there are.
"""

from __future__ import annotations

import os
import random

import click
import pytest

from .brokers import IS_KAFKA, restartable_broker
from .group_kills.run import Ledger, run

# Apache Kafka takes ten times as long to come back.
KILLS = int(os.environ.get("KWIRE_GROUPS_KILLS", "6" if IS_KAFKA else "20"))


@pytest.mark.timeout(180 + 20 * KILLS)
def test_kills_of_members_and_brokers_skip_no_record() -> None:
    seed = int(os.environ.get("KWIRE_GROUPS_SEED", random.randrange(1 << 32)))
    click.echo(f"KWIRE_GROUPS_SEED={seed}")  # which pytest shows when the test fails, in whatever way
    with restartable_broker() as broker:
        account = run(broker, kills=KILLS, seed=seed, name="readers")
    click.echo(account)
    assert account.kills.total() == KILLS
    assert account.records > 20 * KILLS


def test_the_ledger_knows_what_nobody_read() -> None:
    ledger = Ledger()
    ledger.tell(0, 0, 3)
    ledger.tell(0, 2, 5)
    ledger.tell(0, 8, 9)
    assert ledger.missing(0, 10) == [6, 7]
    assert ledger.missing(1, 2) == [0, 1]
    assert ledger.deliveries == 10
