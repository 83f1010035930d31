"""A broker killed again and again under load: no acknowledged record is lost, none comes twice or out of order.

`make soak` does the same for longer. KWIRE_SIGKILL_SEED repeats the kills of a run that failed, as far as the system's
scheduling lets them be repeated; KWIRE_SIGKILL_KILLS is their number.
"""

from __future__ import annotations

import click
import pytest

from testkit.java.java_host import JavaHost
from testkit.kills.harness import kills_of_test, run, seed_of_test
from testkit.kills.sigkill.scenario import Sigkills
from testkit.servers.brokers import IS_KAFKA, restartable_broker

# Apache Kafka takes ten times as long to come back.
KILLS = kills_of_test("KWIRE_SIGKILL_KILLS", 6 if IS_KAFKA else 10)


@pytest.mark.more
@pytest.mark.timeout(60 + 20 * KILLS)
def test_kills_under_load_lose_repeat_and_reorder_nothing(java: JavaHost) -> None:
    seed = seed_of_test("KWIRE_SIGKILL_SEED")
    # Not the broker that tests share: nothing but this is in its data, all of which is read in the end.
    with restartable_broker() as broker:
        account = run(Sigkills(broker, java, "lap"), kills=KILLS, seed=seed)
    click.echo(account)
    assert account.kills.total() == KILLS
    assert account.records > 20 * KILLS
