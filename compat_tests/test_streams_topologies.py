"""Kafka Streams 4.4 describes its topology to the broker (KIP-1331), and Kafka's tool shows it, as kwire's does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from devtools.apache_kafka import run_tool
from kwire.cli import main
from testkit.basics.waiting import eventually
from testkit.clients.streams import STREAMS, WordCount, changelog, repartition
from testkit.java.java_host import STREAMS_GROUPS
from testkit.raw import topics
from testkit.raw.streams_members import coordinator
from testkit.raw.topologies import AVAILABLE, NOT_STORED, PLUGIN, described
from testkit.servers import brokers

VERSION = "4.4.0"

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not brokers.IS_4_4, reason="Apache Kafka 4.3.1 has no descriptions of topologies (KIP-1331)"),
]


@pytest.mark.timeout(180)
def test_a_word_count_describes_itself_and_again_to_a_broker_that_has_lost_that(
    unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("app")
    source, target = f"{name}-lines", f"{name}-words"
    with brokers.restartable_broker(group_streams_topology_description_plugin_class=PLUGIN) as broker:
        for topic in (source, target):
            topics.create(broker.bootstrap, topic)

        def status() -> int:
            with coordinator(broker.bootstrap, name) as client:
                return described(client, name).topology_description_status

        with WordCount(broker.bootstrap, name, source, target, tmp_path, STREAMS, version=VERSION).running():
            eventually(lambda: status() == AVAILABLE, "a topology that is described")
            at = ("--bootstrap-server", broker.bootstrap)
            theirs = run_tool(STREAMS_GROUPS, *at, "--describe", "--group", name, "--topology", version=VERSION).stdout
            shown = CliRunner().invoke(main, ["group", "describe", name, "--topology", *at])
            assert shown.exit_code == 0, shown.output
            assert shown.stdout.split() == theirs.split()
            assert f"(topics: [{source}])" in theirs
            assert f"(topic: {repartition(name)})" in theirs
            assert "(stores: [counts])" in theirs
            assert changelog(name) not in theirs
            broker.kill_and_restart()
            if brokers.IS_KAFKA:
                assert status() == NOT_STORED
            else:
                eventually(lambda: status() == AVAILABLE, "a topology that is described again")
