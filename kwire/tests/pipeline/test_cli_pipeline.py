"""`kwire pipeline table` without Spark: the plan it prints, files of options, and bad input in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kwire.cli import main
from kwire.client.cluster import Cluster
from kwire.client.topics import NewTopic, create_topics
from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.position import Position
from kwire.pipeline.warehouse import parse_warehouse
from kwire.testing import Broker
from testkit.cli.prompt import Prompt
from testkit.spark.iceberg import table_at

NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with the topics orders and clicks.v2, of two partitions and of one; nothing is in them."""
    with Broker(settings={"auto.create.topics.enable": "false"}) as broker:
        with Cluster(broker.address) as cluster:
            create_topics(cluster, [NewTopic("orders", 2, 1), NewTopic("clicks.v2", 1, 1)])
        yield broker.address


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def table(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["pipeline", "table", *arguments])


def planned(*arguments: str) -> list[dict[str, Any]]:
    return Prompt(["pipeline", "table"]).json(*arguments, "--dry-run")


def refused(*arguments: str) -> str:
    """Returns the error's only line."""
    done = table(*arguments)
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    lines = done.stderr.splitlines()
    if lines[0].startswith("Usage: "):  # click's own words for a flag that is none
        lines = [line for line in lines[1:] if line and not line.startswith("Try ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_a_dry_run_shows_the_plan_and_where_it_would_start_and_makes_nothing(bootstrap: str, tmp_path: Path) -> None:
    (found,) = planned("orders", "--to", "w", "-b", bootstrap)
    assert found["topic"] == found["table"] == "orders"
    assert found["warehouse"] == str(tmp_path / "w")
    assert found["table_exists"] is False
    assert found["start"] == found["unread"] == {"0": 0, "1": 0}
    assert not (tmp_path / "w").exists()


def test_a_dry_run_of_a_table_that_is_there_shows_its_offsets(bootstrap: str, tmp_path: Path) -> None:
    with Cluster(bootstrap) as cluster:
        cluster_id, topic_id = cluster.cluster_id or "", str(cluster.topic("orders").topic_id)
    plan = TablePlan(bootstrap=bootstrap, topic="orders", warehouse=parse_warehouse("w", {}), table="orders")
    table_at(plan, Position(cluster_id, "orders", topic_id, {0: 0}))
    (found,) = planned("orders", "--to", "w", "-b", bootstrap, "--begin", "latest")
    assert found["table_exists"] is True
    assert found["start"] == {"0": 0, "1": 0}
    assert "made with --value bytes, not json" in refused("orders", "--to", "w", "-b", bootstrap, "--value", "json")


def test_a_dry_run_without_a_broker_shows_the_plan_and_the_error(tmp_path: Path) -> None:
    for flags in ((), ("--json",)):
        done = table("orders", "--to", "w", "-b", NOBODY, "--dry-run", *flags)
        assert done.exit_code == 2
        assert "orders__errors" in done.stdout
        assert len(done.stderr.splitlines()) == 1
        assert f"cannot reach {NOBODY}: Connection refused" in done.stderr
        assert f"--bootstrap-server {NOBODY}: " in done.stderr
        assert "Is it right, and the broker up?" in done.stderr


def test_several_topics_are_several_plans(bootstrap: str) -> None:
    found = planned("orders", "clicks.v2", "--to", "w", "-b", bootstrap, "--once")
    assert [(it["table"], it["trigger"]) for it in found] == [("orders", "once"), ("clicks_v2", "once")]


def test_no_spark_is_loaded_for_a_dry_run(bootstrap: str) -> None:
    program = (
        "import sys\nfrom kwire.cli import main\n"
        f"try: main(['pipeline', 'table', 'orders', '--to', 'w', '-b', '{bootstrap}', '--dry-run'])\n"
        "except SystemExit as end: assert not end.code, end\n"
        "assert 'pyspark' not in sys.modules and 'py4j' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("arguments", ["'table', 'orders', '--to', 'w'", "'table', '--file', 'orders.yaml'"])
def test_packages_that_are_not_installed_are_named_with_what_to_install(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "orders.yaml").write_text("topics: [orders]\nto: w\n")
    gone = "for name in ('pyspark', 'py4j', 'yaml', 'pyiceberg'): sys.modules[name] = None"
    program = f"import sys\n{gone}\nfrom kwire.cli import main\nmain(['pipeline', {arguments}])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 2
    wanted = "kwire pipeline: pyspark, pyiceberg, yaml not found: the jobs need pip install 'kwire[pipeline]'\n"
    assert done.stderr == wanted


# A file of options.

YAML = """\
topics: [orders, clicks.v2]
to: w
value: json
partition-by: [days(kafka.timestamp), value.id]
once: true
interval: 2.5
max-records-per-commit: 10
conf: {spark.sql.shuffle.partitions: 4}
option: {kafka.security.protocol: PLAINTEXT, includeNothing: true}
schema:
"""
TOML = """\
topics = ["orders", "clicks.v2"]
to = "w"
value = "json"
partition-by = ["days(kafka.timestamp)", "value.id"]
once = true
interval = 2.5
max_records_per_commit = 10
conf = {"spark.sql.shuffle.partitions" = 4}
option = {"kafka.security.protocol" = "PLAINTEXT", includeNothing = true}
"""


@pytest.mark.parametrize(("name", "text"), [("o.yaml", YAML), ("o.toml", TOML)])
def test_a_file_holds_the_options_and_flags_go_before_it(bootstrap: str, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    first, second = planned("--file", name, "-b", bootstrap)
    assert (first["topic"], second["topic"]) == ("orders", "clicks.v2")
    assert first["value"] == "json"
    assert first["trigger"] == "once"
    assert first["max_records_per_commit"] == 10
    assert first["partition_by"] == ["days(kafka.timestamp)", "value.id"]
    assert first["source_options"]["kafka.security.protocol"] == "PLAINTEXT"
    assert first["source_options"]["includeNothing"] == "true"

    (only,) = planned("orders", "--file", name, "-b", bootstrap, "--value", "bytes", "--partition-by", "value.x")
    assert (only["topic"], only["value"], only["partition_by"]) == ("orders", "bytes", ["value.x"])


def test_a_single_topic_needs_no_brackets_and_every_flag_has_a_name(bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "o.yaml").write_text(f"topics: orders\nto: w\nbootstrap-server: {bootstrap}\ntable: mine\n")
    (found,) = planned("--file", "o.yaml")
    assert (found["topic"], found["table"]) == ("orders", "mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topics: [orders]\nto: w\nspeed: high\nfaster: yes\n", "does not have: faster, speed"),
        ("topics: [orders]\nto: w\nfile: other.yaml\n", "does not have: file"),
        ("topics: [orders]\nto: w\nvalue: xml\n", "'xml' is not one of"),
        ("topics: [orders]\nto: w\ninterval: soon\n", "'soon' is not a valid float"),
        ("topics: [orders]\nto: w\nconf: nonsense\n", "is not NAME=VALUE"),
        ("topics: [orders\n", "is not well-formed"),
        ("topics: []\nto: w\n", "no topic is named"),
        ("topics: [orders]\n", "Missing option '--to'"),
        ("topics: {a: b}\nto: w\n", "topics takes values, not {'a': 'b'}"),
        ("topics: [[a]]\nto: w\n", "topics takes values, not [['a']]"),
        ("topics: [orders]\nto: [w, x]\n", "to takes one value, not ['w', 'x']"),
        ("topics: [orders]\nto: {w: x}\n", "to takes one value, not {'w': 'x'}"),
        ("topics: [orders]\nwarehouse: w\n", "does not have: warehouse"),
        ("topics: [orders]\nto: w\nonce: maybe\n", "maybe"),
    ],
)
def test_a_file_with_something_else_in_it_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "o.yaml").write_text(text)
    assert message in refused("--file", "o.yaml", "-b", NOBODY)


# Bad input.

JSON = ("--value", "json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no topic is named"),
        (("orders", "--table", "a.b"), "is no name for a table"),
        (("orders", "clicks", "--table", "t"), "there are several topics"),
        (("a.b", "a-b"), "would both become table a_b"),
        (("orders", "orders"), "named twice"),
        (("orders", *JSON, "--schema", "missing.ddl"), "the schema missing.ddl cannot be read: No such file"),
        (("orders", *JSON, "--schema", "empty.ddl"), "the schema empty.ddl names no fields"),
        (("orders", *JSON, "--schema", "empty.json"), "the schema empty.json names no fields"),
        (("orders", *JSON, "--schema", "bad.avsc"), "the schema bad.avsc is not JSON"),
        (("orders", "--value", "avro"), "--value avro wants its schema"),
        (("orders", "--value", "avro", "--schema", "bad.avsc"), "bad.avsc is not JSON"),
        (("orders", "--value", "confluent-avro", "--schema", "bad.avsc"), "is no folder"),
        (("orders", "--evolve"), "--schema and --evolve are for values that are decoded"),
        (("orders", "--partition-by", "days("), "neither a field nor a transform"),
        (("orders", "--option", "nonsense"), "is not NAME=VALUE"),
        (("orders", "--option", "failOnDataLoss=false"), "the job sets failOnDataLoss by itself"),
        (("orders", "--conf", "=x"), "is not NAME=VALUE"),
        (("orders", "--dead-letter-topic", "orders"), "would come back for ever"),
        (("orders", "--interval", "-1"), "-1"),
        (("orders", "--max-records-per-commit", "0"), "0"),
        (("orders", "--nonsense"), "No such option"),
        (("orders", "--file", "missing.yaml"), "does not exist"),
    ],
)
def test_bad_input_is_one_line_that_explains_what_to_do(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "empty.ddl").write_text(" \n")
    (tmp_path / "empty.json").write_text('{"type": "struct"}')
    (tmp_path / "bad.avsc").write_text("{")
    for mode in ((), ("--dry-run",)):
        assert message in refused(*arguments, "--to", "w", "-b", NOBODY, *mode)
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("file", "is a file"),
        ("file/w", "is a file"),
        ("s3://bucket/w", "Tables elsewhere need a catalog"),
        ("catalog:prod", "is not configured"),
        ("garbage", "not a database"),
    ],
)
def test_a_warehouse_that_cannot_be_is_one_line(bootstrap: str, tmp_path: Path, to: str, message: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "garbage").mkdir()
    (tmp_path / "garbage" / "catalog.db").write_bytes(b"garbage" * 1000)
    for mode in ((), ("--dry-run",)):
        assert message in refused("orders", "--to", to, "-b", bootstrap, *mode)


def test_a_catalog_that_is_not_there_is_one_line(bootstrap: str) -> None:
    conf = ["spark.sql.catalog.prod=org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.prod.type=rest"]
    flags = [part for it in (*conf, f"spark.sql.catalog.prod.uri=http://{NOBODY}") for part in ("--conf", it)]
    for mode in ((), ("--dry-run",)):
        message = refused("orders", "--to", "catalog:prod", "-b", bootstrap, *flags, *mode)
        assert "catalog:prod cannot be read" in message


@pytest.mark.parametrize("mode", [(), ("--dry-run",)])
def test_topics_and_brokers_that_are_not_there_are_one_line(bootstrap: str, mode: tuple[str, ...]) -> None:
    assert "topic nonsense not found at" in refused("orders", "nonsense", "--to", "w", "-b", bootstrap, *mode)
    flags = ("orders", "--to", "w", "-b", bootstrap, "--dead-letter-topic", "nonsense", *mode)
    assert "topic nonsense not found at" in refused(*flags)
    assert "cannot reach" in refused("orders", "--to", "w", "-b", NOBODY, *mode)
    assert "is not HOST:PORT" in refused("orders", "--to", "w", "-b", "nonsense", *mode)


def test_a_wrong_java_is_reported_before_spark_prints_anything(bootstrap: str, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho '  java.specification.version = 11' >&2\n")
    java.chmod(0o755)
    command = [sys.executable, "-m", "kwire", "pipeline", "table", "orders", "--to", "w", "-b", bootstrap]
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    for path, message in ((java.parent, f"{java} is Java 11: "), (tmp_path / "none", "java not found: ")):
        done = subprocess.run(
            command,
            check=False,
            timeout=60,
            capture_output=True,
            text=True,
            env={**environment, "PATH": str(path)},
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 2
        assert done.stderr.startswith(f"kwire pipeline: {message}")
        assert len(done.stderr.splitlines()) == 1
        assert done.stdout == ""
