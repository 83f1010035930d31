"""Killed again and again under load: nothing acknowledged is lost, nothing comes twice or out of order.

`make soak` does the same for longer. KWIRE_SIGKILL_SEED repeats the kills of a run that failed, as far as the system's
scheduling lets them be repeated; KWIRE_SIGKILL_KILLS tells how many.
"""

from __future__ import annotations

import os
import random

import click
import pytest

from testkit.java.java_host import JavaHost
from testkit.kills.sigkill import laps
from testkit.servers.brokers import IS_KAFKA, restartable_broker

# Apache Kafka takes ten times as long to come back.
KILLS = int(os.environ.get("KWIRE_SIGKILL_KILLS", "6" if IS_KAFKA else "10"))


@pytest.mark.more
@pytest.mark.timeout(60 + 20 * KILLS)
def test_kills_under_load_lose_repeat_and_reorder_nothing(java: JavaHost) -> None:
    seed = int(os.environ.get("KWIRE_SIGKILL_SEED", random.randrange(1 << 32)))
    click.echo(f"KWIRE_SIGKILL_SEED={seed}")  # which pytest shows when the test fails, in whatever way
    # Not the broker that tests share: nothing but this is in its data, all of which is read in the end.
    with restartable_broker() as broker:
        account = laps.run(broker, java=java, kills=KILLS, seed=seed, name="lap")
    click.echo(account)
    assert account.kills.total() == KILLS
    assert account.records > 20 * KILLS
