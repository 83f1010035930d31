"""`kwire pipeline replay` without Spark: the plan that it prints, and bad input in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner, Result
from kwire_protocol.records import Record

from kwire.cli import main
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.producing import Producer
from kwire.client.topics import NewTopic, create_topics
from kwire.pipeline.replay.keeper import Keeper, peek
from kwire.pipeline.replay.pinned import Pinned, PinnedTopic
from kwire.testing import Broker
from kwire.tests.pipeline.replay.pinned_plan import PINNED


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
    """The one line that says why."""
    done = replay(*arguments)
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    (line,) = done.stderr.splitlines()
    return line


def pin(bootstrap: str, name: str, pinned: Pinned) -> None:
    with Cluster(bootstrap) as cluster:
        Keeper.take(cluster, name, "kwire-replays", lambda: 1).keep(pinned)


def test_a_dry_run_shows_what_would_be_replayed_and_makes_nothing(bootstrap: str) -> None:
    done = replay(
        "orders", "-b", bootstrap, "--to-topic", "copy", "--to", "0:3", "--where", "TRUE", "--dry-run", "--json"
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["name"].startswith("orders-to-copy-")
    assert (found["from"], found["until"], found["ranges"]) == ("earliest", "0:3", {"0": "0 to 3"})
    assert (found["partitions"], found["state"], found["where"]) == (3, "new", "TRUE")
    shown = replay("orders", "-b", bootstrap, "--to-topic", "copy", "--dry-run").stdout
    assert "ranges          0=0 to 5 1=0 to 0" in shown.splitlines()
    with Cluster(bootstrap) as cluster:
        assert "kwire-replays" not in {it.name for it in cluster.metadata(None).topics}
        assert peek(cluster, "never", "kwire-replays") is None


def test_a_replay_that_is_done_says_so_and_does_nothing(bootstrap: str) -> None:
    flags = ("orders", "-b", bootstrap, "--to-topic", "copy")
    described = json.loads(replay(*flags, "--dry-run", "--json").stdout)
    command = {"topic": "orders", "--from": "earliest", "--until": "latest", "--where": None, "--to-topic": "copy"}
    pin(bootstrap, described["name"], attrs.evolve(PINNED, command=command, state="done", records=5))
    done = replay(*flags)
    assert (done.exit_code, json.loads(done.stdout)) == (
        0,
        {"event": "done", "name": described["name"], "records": 5},
    )
    assert json.loads(replay(*flags, "--dry-run", "--json").stdout)["state"] == "done"


def test_a_dry_run_of_a_replay_that_has_begun_shows_the_range_it_keeps_to(bootstrap: str) -> None:
    command = {"topic": "orders", "--from": "2", "--until": "latest", "--where": None, "--to-topic": "copy"}
    source = PinnedTopic("cluster", "id", {0: (2, 4)})
    pin(bootstrap, "begun", attrs.evolve(PINNED, command=command, source=source))
    flags = ("orders", "-b", bootstrap, "--to-topic", "copy", "--name", "begun")
    found = json.loads(replay(*flags, "--from", "2", "--dry-run", "--json").stdout)
    assert (found["state"], found["ranges"]) == ("running", {"0": "2 to 4"})
    assert "was begun with --from 2, not --from earliest: give the new one a name" in refused(*flags)


@pytest.mark.parametrize(
    ("flags", "says"),
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
def test_what_is_wrong_is_said_in_a_line(bootstrap: str, flags: tuple[str, ...], says: str) -> None:
    assert says in refused(*flags, "-b", bootstrap)
