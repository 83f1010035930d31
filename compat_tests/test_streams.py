"""Kafka Streams counts words exactly once, killed and started again together with the broker.

`make soak` does the same for longer. KWIRE_STREAMS_SEED repeats the kills of a run that failed, as far as the system's
scheduling lets them be repeated; KWIRE_STREAMS_KILLS is their number.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testkit.clients.streams import PROTOCOLS
from testkit.kills.harness import kills_of_test, run, seed_of_test
from testkit.kills.streams.scenario import Counting
from testkit.servers.brokers import RestartableBroker

KILLS = kills_of_test("KWIRE_STREAMS_KILLS", 1)


@pytest.mark.more
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.timeout(120 + 60 * KILLS)
def test_words_are_counted_once_though_streams_and_broker_are_killed(
    restartable_broker: RestartableBroker, unique: Callable[[str], str], tmp_path: Path, protocol: str
) -> None:
    seed = seed_of_test("KWIRE_STREAMS_SEED")
    account = run(Counting(restartable_broker, tmp_path, unique("app"), protocol), kills=KILLS, seed=seed)
    assert account.kills.total() == KILLS
