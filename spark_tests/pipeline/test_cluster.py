"""Jobs on a Spark cluster, by `--master` and by `spark-submit`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devtools.ports import LOOPBACK, free_port
from kwire.pipeline.warehouse import NAMESPACE, parse_warehouse
from testkit.servers import brokers
from testkit.spark.cluster import Cluster, standalone_cluster
from testkit.spark.commands import jar_files, kwire, run
from testkit.spark.records import Record, consume, numbered

pytestmark = pytest.mark.soak  # master, worker, driver and executor are Java processes of their own

Sent = Callable[..., None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def _on(master: str, *arguments: str) -> list[str]:
    return kwire(*arguments, "--master", master, "--conf", f"spark.jars={jar_files()}")


def _spark_submit(folder: Path, *arguments: str, master: str, with_jars: bool = True) -> list[str]:
    """The program is the one that docs/pipeline.md shows."""
    program = folder / "job.py"
    program.write_text("from kwire.cli import main; main()\n")
    return ["spark-submit", "--master", master, "--jars", jar_files() if with_jars else "", str(program), *arguments]


@pytest.mark.parametrize("way", ["--master", "spark-submit"])
def test_a_job_on_a_cluster_fills_the_table(
    way: str, cluster: Cluster, broker: brokers.Broker, topic: str, sent: Sent, tmp_path: Path
) -> None:
    sent(topic, [*(Record(b'{"id": %d}' % n) for n in range(500)), Record(b"{broken")])
    jobs_before = set(cluster.work.glob("app-*"))
    arguments = ["pipeline", "table", topic, "-b", broker.bootstrap, "--to", "warehouse", "--value", "json", "--once"]
    if way == "--master":
        done = run(tmp_path, _on(cluster.master, *arguments, "--json"))
    else:
        done = run(tmp_path, _spark_submit(tmp_path, *arguments, "--json", master=cluster.master))

    assert done.returncode == 0, done.stderr
    (commit,) = map(json.loads, done.stdout.splitlines())
    assert (commit["event"], commit["records"], commit["errors"]) == ("commit", 501, 1)
    catalog = parse_warehouse(str(tmp_path / "warehouse"), {}).pyiceberg_catalog()
    (table,) = (name for _, name in catalog.list_tables(NAMESPACE) if not name.endswith("__errors"))
    rows = catalog.load_table((NAMESPACE, table)).scan().to_arrow()
    assert sorted(row["id"] for row in rows["value"].to_pylist()) == list(range(500))
    (executors,) = set(cluster.work.glob("app-*")) - jobs_before
    assert (executors / "0" / "stderr").exists(), "the worker ran it"


def test_copies_are_written_by_the_workers(
    cluster: Cluster, broker: brokers.Broker, topic: str, new_topic: Callable[..., str], sent: Sent, tmp_path: Path
) -> None:
    """Their tasks are Python's, so a worker needs kwire as well."""
    replayed = new_topic()
    sent(topic, [Record(b"%d" % n, key=b"%d" % (n % 7)) for n in range(500)])
    same = ["-b", broker.bootstrap, "--to-topic", replayed]
    done = run(tmp_path, _on(cluster.master, "pipeline", "replay", topic, *same))
    assert done.returncode == 0, done.stderr
    assert [int(it.value or b"") for it in consume(broker.bootstrap, replayed)] == list(range(500))

    ends = ["--from", broker.bootstrap, "--to", broker.bootstrap, "--rename", "copy.{topic}", "--no-groups"]
    done = run(tmp_path, _on(cluster.master, "pipeline", "mirror", topic, *ends, "--exactly-once", "--once"))
    assert done.returncode == 0, done.stderr
    assert [int(it.value or b"") for it in consume(broker.bootstrap, f"copy.{topic}")] == list(range(500))


def test_what_ends_a_command_under_spark_submit_is_a_line(
    cluster: Cluster, broker: brokers.Broker, topic: str, sent: Sent, tmp_path: Path
) -> None:
    """spark-submit prints a program's standard error on standard output, and passes its exit code on."""
    sent(topic, numbered(1))
    arguments = ["pipeline", "table", topic, "-b", broker.bootstrap, "--to", "warehouse", "--once"]
    for command, message in (
        (_spark_submit(tmp_path, *arguments, master=cluster.master, with_jars=False), "Iceberg for Spark not found: "),
        (
            _spark_submit(tmp_path, *arguments, "--master", cluster.master, master=cluster.master),
            "spark-submit has chosen the master already: ",
        ),
    ):
        done = run(tmp_path, command)
        assert done.returncode == 2, done.stderr
        (line,) = done.stdout.splitlines()
        assert line.startswith("kwire pipeline: ")
        assert message in line


def test_a_master_that_is_not_there_is_a_line(broker: brokers.Broker, topic: str, sent: Sent, tmp_path: Path) -> None:
    """Spark tries for a minute."""
    sent(topic, numbered(1))
    nobody = f"spark://{LOOPBACK}:{free_port()}"
    arguments = ["pipeline", "table", topic, "-b", broker.bootstrap, "--to", "warehouse", "--once"]
    done = run(tmp_path, _on(nobody, *arguments))
    assert (done.returncode, done.stdout) == (2, "")
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"kwire pipeline: Spark does not start on {nobody} (is its address right, and is it up?): ")
    assert "Traceback" not in done.stderr
