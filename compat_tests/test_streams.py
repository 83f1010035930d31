"""Kafka Streams counts words exactly once, killed and started again together with the broker.

`make soak` does the same for longer. KWIRE_STREAMS_SEED repeats the kills of a run that failed, as far as the system's
scheduling lets them be repeated; KWIRE_STREAMS_KILLS tells how many.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from testkit.clients.streams import PROTOCOLS
from testkit.kills.streams import counting
from testkit.servers.brokers import RestartableBroker

KILLS = int(os.environ.get("KWIRE_STREAMS_KILLS", "1"))


@pytest.mark.more
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.timeout(120 + 60 * KILLS)
def test_words_are_counted_once_though_streams_and_broker_are_killed(
    restartable_broker: RestartableBroker, unique: Callable[[str], str], tmp_path: Path, protocol: str
) -> None:
    seed = int(os.environ.get("KWIRE_STREAMS_SEED", random.randrange(1 << 32)))
    click.echo(f"KWIRE_STREAMS_SEED={seed}")  # which pytest shows when the test fails
    account = counting.run(
        restartable_broker, folder=tmp_path, kills=KILLS, seed=seed, name=unique("app"), protocol=protocol
    )
    assert account.kills.total() == KILLS
