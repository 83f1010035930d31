"""A catalog that is configured, not a folder: Iceberg's REST catalog, a server of its own."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools.jars import classpath, compile_java
from devtools.java import java
from devtools.ports import LOOPBACK, free_port
from kwire.pipeline.warehouse import NAMESPACE, parse_warehouse, table_name
from testkit.basics.waiting import eventually
from testkit.servers import brokers
from testkit.spark.commands import SPARK, jar_files, kwire, run
from testkit.spark.records import Record

pytestmark = pytest.mark.soak  # a server, and a Java process for each command

Sent = Callable[..., None]

_STARTS_WITHIN_S = 60


@contextmanager
def _rest_catalog(folder: Path) -> Iterator[str]:
    """The catalog's URI. Its tables are in `folder`/tables."""
    port = free_port()
    jars = os.pathsep.join([classpath("iceberg-rest-catalog"), str(SPARK / "jars" / "*")])
    classes = compile_java(Path(__file__).with_name("RestCatalog.java"), _named(jars))
    command: list[str | Path] = [
        java(),
        "-cp",
        os.pathsep.join([str(classes), jars]),
        "RestCatalog",
        LOOPBACK,
        str(port),
    ]
    with (folder / "catalog.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, folder / "catalog.db", folder / "tables"], stdin=subprocess.PIPE, stdout=log, stderr=log
        )
    uri = f"http://{LOOPBACK}:{port}"
    try:
        eventually(
            lambda: process.poll() is not None or _answers(uri), "the catalog answers", within_s=_STARTS_WITHIN_S
        )
        assert process.poll() is None, (folder / "catalog.log").read_text()
        yield uri
    finally:
        process.communicate(timeout=_STARTS_WITHIN_S)  # its standard input ends


def _named(jars: str) -> str:
    """Java's compiler takes no `*` in a class path."""
    return jars.replace(str(SPARK / "jars" / "*"), os.pathsep.join(map(str, sorted((SPARK / "jars").glob("hadoop-*")))))


def _answers(uri: str) -> bool:
    try:
        with urllib.request.urlopen(f"{uri}/v1/config", timeout=10):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _settings(uri: str) -> dict[str, str]:
    """Returns the catalog's settings, as in docs/pipeline.md."""
    prefix = "spark.sql.catalog.prod"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.type": "rest", f"{prefix}.uri": uri}


def _conf(uri: str) -> list[str]:
    return [word for name, value in _settings(uri).items() for word in ("--conf", f"{name}={value}")]


def test_a_rest_catalog_needs_nothing_but_its_configuration(
    broker: brokers.Broker, topic: str, sent: Sent, tmp_path: Path
) -> None:
    sent(topic, [*(Record(b'{"id": %d}' % n) for n in range(300)), Record(b"{broken")])
    with _rest_catalog(tmp_path) as uri:
        conf = _conf(uri)
        job = ["-b", broker.bootstrap, "--to", "catalog:prod", *conf, "--conf", f"spark.jars={jar_files()}", "--json"]

        done = run(tmp_path, kwire("pipeline", "table", topic, "--value", "json", "--once", *job))
        assert done.returncode == 0, done.stderr
        (commit,) = map(json.loads, done.stdout.splitlines())
        assert (commit["records"], commit["errors"]) == (301, 1)

        done = run(tmp_path, kwire("pipeline", "status", "catalog:prod", "-b", broker.bootstrap, *conf, "--json"))
        assert done.returncode == 0, done.stderr
        (status,) = map(json.loads, done.stdout.splitlines())
        assert (status["topic"], status["rows"], status["errors"], status["lag"]) == (topic, 300, 1, 0)

        done = run(tmp_path, kwire("pipeline", "verify", topic, *job))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["sound"]

        catalog = parse_warehouse("catalog:prod", _settings(uri)).pyiceberg_catalog()
        rows = catalog.load_table((NAMESPACE, table_name(topic))).scan().to_arrow()
        assert sorted(row["id"] for row in rows["value"].to_pylist()) == list(range(300))
    assert list((tmp_path / "tables").rglob("*.parquet")), "the tables are where the catalog has them"


def test_a_rest_catalog_that_does_not_answer_is_a_line(
    broker: brokers.Broker, topic: str, sent: Sent, tmp_path: Path
) -> None:
    sent(topic, [Record(b"{}")])
    conf = _conf(f"http://{LOOPBACK}:{free_port()}")
    for arguments in (["status", "catalog:prod"], ["verify", topic, "-b", broker.bootstrap, "--to", "catalog:prod"]):
        jars = [] if arguments[0] == "status" else ["--conf", f"spark.jars={jar_files()}"]
        done = run(tmp_path, kwire("pipeline", *arguments, *conf, *jars))
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert done.stderr.splitlines()[-1].startswith("kwire pipeline: ")
        assert "Traceback" not in done.stderr
