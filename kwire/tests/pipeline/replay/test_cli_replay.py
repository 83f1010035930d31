"""`kwire pipeline replay` without Spark: the plan that it prints, and bad input in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest
from click.testing import CliRunner, Result
from kwire_protocol.records import Record

from devtools.suite.snapshots import Snapshot
from kwire.cli import main
from kwire.cli.pipeline.options import Running
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.producing import Producer
from kwire.client.topics import NewTopic, create_topics
from kwire.pipeline.replay.keeper import Keeper, peek
from kwire.pipeline.replay.pinned import Pinned, PinnedTopic
from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.position import Position
from kwire.pipeline.tables.table_state import table_state
from kwire.pipeline.warehouse import parse_warehouse
from kwire.testing import Broker
from testkit.cli.json_page import check_all_keys
from testkit.cli.prompt import Prompt
from testkit.spark.iceberg import table_at
from testkit.spark.pinned_plan import PINNED

cli_replay = import_module("kwire.cli.pipeline.replay")
"""The package has the command under this name."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with the topic orders, of two partitions and five records, and an empty one, copy."""
    with Broker(settings={"auto.create.topics.enable": "false", "transaction.state.log.num.partitions": "1"}) as broker:
        with Cluster(broker.address) as cluster:
            create_topics(cluster, [NewTopic("orders", 2, 1), NewTopic("copy", 3, 1)])
            Producer(cluster).produce({TopicPartition("orders", 0): [Record(0, n) for n in range(5)]})
        yield broker.address


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def replay(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["pipeline", "replay", *arguments])


def refused(*arguments: str) -> str:
    """Returns the error's only line."""
    done = replay(*arguments)
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    (line,) = done.stderr.splitlines()
    return line


def pin(bootstrap: str, name: str, pinned: Pinned) -> None:
    with Cluster(bootstrap) as cluster:
        Keeper.take(cluster, name, "kwire-replays", lambda: 1).keep(pinned)


def planned(*arguments: str) -> dict[str, Any]:
    (found,) = Prompt(["pipeline", "replay"]).json(*arguments, "--dry-run")
    return dict(found)


def test_a_plan_as_people_see_it(bootstrap: str, snapshot: Snapshot) -> None:
    prompt = Prompt(["pipeline", "replay"], ["-b", bootstrap], {bootstrap: "127.0.0.1:9092"})
    prompt("orders", "--to-topic", "copy", "--where", "TRUE", "--name", "again", "--dry-run")
    snapshot("pipeline-replay", prompt.transcript)


def test_a_dry_run_shows_what_would_be_replayed_and_makes_nothing(bootstrap: str) -> None:
    found = planned("orders", "-b", bootstrap, "--to-topic", "copy", "--to", "0:3", "--where", "TRUE")
    assert found["name"].startswith("orders-to-copy-")
    assert (found["from"], found["until"], found["ranges"]) == ("earliest", "0:3", {"0": "0 to 3"})
    assert (found["partitions"], found["state"], found["where"]) == (3, "new", "TRUE")
    assert planned("orders", "-b", bootstrap, "--to-topic", "copy")["ranges"] == {"0": "0 to 5", "1": "0 to 0"}
    with Cluster(bootstrap) as cluster:
        assert "kwire-replays" not in {it.name for it in cluster.metadata(None).topics}
        assert peek(cluster, "never", "kwire-replays") is None


def test_a_replay_that_is_done_prints_done_and_does_nothing(bootstrap: str) -> None:
    flags = ("orders", "-b", bootstrap, "--to-topic", "copy")
    described = planned(*flags)
    command = {"topic": "orders", "--from": "earliest", "--until": "latest", "--where": None, "--to-topic": "copy"}
    pin(bootstrap, described["name"], attrs.evolve(PINNED, command=command, state="done", records=5))
    prompt = Prompt(["pipeline", "replay"])
    assert prompt.json(*flags) == [{"event": "done", "name": described["name"], "records": 5}]
    assert json.loads(prompt(*flags).stdout)["event"] == "done", "what is no terminal gets JSON"
    assert planned(*flags)["state"] == "done"


def test_a_dry_run_of_a_replay_that_has_begun_shows_the_range_it_keeps_to(bootstrap: str) -> None:
    command = {"topic": "orders", "--from": "2", "--until": "latest", "--where": None, "--to-topic": "copy"}
    source = PinnedTopic("cluster", "id", {0: (2, 4)})
    pin(bootstrap, "begun", attrs.evolve(PINNED, command=command, source=source))
    flags = ("orders", "-b", bootstrap, "--to-topic", "copy", "--name", "begun")
    found = planned(*flags, "--from", "2")
    assert (found["state"], found["ranges"]) == ("running", {"0": "2 to 4"})
    assert "was begun with --from 2, not --from earliest: give the new one a name" in refused(*flags)


def test_a_dry_run_of_a_table_names_the_snapshot(bootstrap: str) -> None:
    plan = TablePlan(bootstrap=bootstrap, topic="orders", warehouse=parse_warehouse("w", {}), table="orders")
    table_at(plan, Position("cluster", "orders", "id", {0: 5}))
    found = planned("orders", "-b", bootstrap, "--to-topic", "copy", "--warehouse", "w")
    stands = table_state(plan.warehouse, "orders")
    assert stands is not None
    assert (found["table"], found["snapshot_id"]) == ("orders", stands.snapshot_id)


def test_json_has_the_keys_of_the_page(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = TablePlan(bootstrap=bootstrap, topic="orders", warehouse=parse_warehouse("w", {}), table="orders")
    table_at(plan, Position("cluster", "orders", "id", {0: 5}))
    flags = ("orders", "-b", bootstrap, "--to-topic", "copy")
    objects: list[Any] = [planned(*flags), planned(*flags, "--warehouse", "w")]
    running = Running(give_up_after_s=1, metrics_port=None, conf={}, master=None, as_json=True, dry_run=False)
    for state in ("done", "running"):
        cli_replay._print_result(
            cast(Any, SimpleNamespace(name="orders-to-copy")), attrs.evolve(PINNED, state=state), running
        )
    objects += map(json.loads, capsys.readouterr().out.splitlines())
    assert [it["event"] for it in objects[2:]] == ["done", "stopped"]
    check_all_keys("pipeline replay", objects)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("orders", "--to-topic", "copy", "--from", "soon"), "'soon' is neither an offset"),
        (
            ("orders", "--to-topic", "copy", "--to", "folder"),
            "--to is the end of the range; the folder of a table is --warehouse",
        ),
        (("orders", "--to-topic", "copy", "--from", "latest"), "the range is empty"),
        (("orders", "--to-topic", "copy", "--name", "a b"), "--name 'a b' is no name"),
        (("orders", "--to-topic", "none", "--dry-run"), "topic none not found"),
        (("none", "--to-topic", "copy"), "topic none not found"),
        (("orders", "--to-topic", "copy", "--warehouse", "w"), "table orders not found: there are no tables in "),
        (
            ("orders", "--to-topic", "copy", "--warehouse", "w", "--option", "a=b"),
            "--option is for Spark's kafka source",
        ),
        (("orders", "--to-topic", "copy", "--option", "subscribe=x"), "the job sets subscribe by itself"),
        (("orders", "--to-topic", "copy", "--target", "127.0.0.1:1"), "127.0.0.1:1"),
        (("orders", "--to-topic", "copy", "--target", "nowhere"), "the target's brokers, nowhere: "),
    ],
)
def test_what_is_wrong_is_reported_in_a_line(bootstrap: str, flags: tuple[str, ...], message: str) -> None:
    assert message in refused(*flags, "-b", bootstrap)
