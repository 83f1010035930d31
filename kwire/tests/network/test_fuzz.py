"""Hostile and broken peers get errors or are disconnected; others are not affected.

A seeded fuzz of a `kwire serve` process over raw sockets, a hypothesis-driven one of a broker in this process, and the
attacks that need no chance: frames that never end, names that are paths, compressed bombs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from testkit.raw.client import RawClient
from testkit.raw.fuzz.driver import SLOWEST_ROUND_S, Fuzzer, HealthyClient, ensure_topic, topic_id
from testkit.raw.fuzz.frames import FrameMaker
from testkit.raw.fuzz.requests import TopicNames
from testkit.servers.broker_process import BrokerProcess

MIB = 1024 * 1024
PARTS = 5
TOPICS: dict[str, dict[str, str]] = {"fuzz-0": {}, "fuzz-1": {}, "fuzz-compacted": {"cleanup.policy": "compact"}}
MOST_DESCRIPTORS = 200
LATEST = -1
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+ +\S")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, ["auto.create.topics.enable=false", "unstable.api.versions.enable=true"]) as running:
        yield running


def assert_calm_log(broker: BrokerProcess, attacks: int, closed: int) -> None:
    """Allows a warning for each disconnected client, few other lines, and none of the peer's bytes unescaped."""
    bugs = broker.bugs()
    assert not bugs, "\n".join(bugs)
    lines = broker.log().splitlines()
    info_lines = [line for line in lines if " INFO " in line]
    assert len(lines) - len(info_lines) <= closed
    assert len(info_lines) < attacks / 10
    for line in lines:
        assert LOG_LINE.match(line), line
        assert line.isprintable(), line
        assert len(line) <= 1000, line


def names_of(broker: BrokerProcess) -> TopicNames:
    """Returns topics to name in attacks; creates those that an attack has deleted."""
    with RawClient(broker.address) as client:
        for name, configs in TOPICS.items():
            ensure_topic(client, name, configs)
        ids = tuple(topic_id(client, name) for name in TOPICS)
    return TopicNames((*TOPICS, "not-there"), ids)


@pytest.mark.parametrize(
    ("seed", "attacks"), [(0, 10_000), *(pytest.param(seed, 25_000, marks=pytest.mark.soak) for seed in (1, 2, 3, 4))]
)
def test_a_healthy_client_notices_nothing_of_thousands_of_attacks(
    broker: BrokerProcess, seed: int, attacks: int
) -> None:
    fuzzer = Fuzzer(broker.address)
    resident = 0
    with HealthyClient(broker.address, "healthy") as healthy:
        for part in range(PARTS):
            fuzzer.run(FrameMaker(seed * 1000 + part, names_of(broker)), attacks // PARTS)
            resident = resident or broker.resident_bytes()
        grown = broker.resident_bytes() - resident
    assert fuzzer.outcomes.total() == attacks
    assert fuzzer.outcomes["answered"] > attacks / 2, fuzzer.outcomes
    assert fuzzer.outcomes["closed"] > attacks / 5, fuzzer.outcomes
    assert fuzzer.outcomes["waited"] < attacks / 500, fuzzer.outcomes
    assert healthy.rounds > 20
    assert healthy.slowest_s < SLOWEST_ROUND_S
    assert grown < 48 * MIB
    assert broker.open_descriptors() < MOST_DESCRIPTORS
    assert_calm_log(broker, attacks, fuzzer.outcomes["closed"] + fuzzer.outcomes["waited"])
    assert [path.name for path in broker.data_dir.parent.iterdir() if path.is_dir()] == ["data"]
    assert broker.stop() == 0
    assert_starts_again(broker.data_dir.parent, healthy.rounds)


def assert_starts_again(folder: Path, rounds: int) -> None:
    """Checks that the remains of the attacks do not keep the broker from its data."""
    with BrokerProcess(folder) as again:
        with RawClient(again.address) as client:
            wanted = ListOffsetsTopic("healthy", [ListOffsetsPartition(0, timestamp=LATEST)])
            (topic,) = client.call(ListOffsetsRequest(topics=[wanted]), 7).topics
        assert topic.partitions[0].offset == rounds
        assert again.stop() == 0
        assert again.bugs() == []
