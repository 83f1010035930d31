"""A Spark cluster of one machine: a standalone master and a worker, from the pyspark that is installed.

`spark-class` becomes the Java process (it ends in `exec`), so what was started here is ended by its own process id. The
worker ends its executors.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from devtools.ports import LOOPBACK, free_port
from testkit.basics.waiting import eventually
from testkit.spark.commands import SPARK, spark_environment

_STARTS_WITHIN_S = 120
_ENDS_WITHIN_S = 60


@attrs.frozen
class Cluster:
    """`master` is a URL, spark://HOST:PORT. The executors of each job have a folder in `work`."""

    master: str
    work: Path


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """A master and a worker of two cores, on free ports of the loopback address; their output is in `folder`."""
    port, page = free_port(), free_port()
    cluster = Cluster(f"spark://{LOOPBACK}:{port}", folder / "work")
    master = ("master.Master", "--host", LOOPBACK, "--port", str(port), "--webui-port", str(page))
    worker = ("worker.Worker", "--host", LOOPBACK, "--webui-port", str(free_port()), "--work-dir", str(cluster.work))
    with ExitStack() as stack:
        stack.enter_context(_daemon(folder / "master.log", *master))
        process = stack.enter_context(
            _daemon(folder / "worker.log", *worker, "--cores", "2", "--memory", "1g", cluster.master)
        )
        eventually(
            lambda: process.poll() is not None or _workers(page), "the master knows a worker", within_s=_STARTS_WITHIN_S
        )
        assert process.poll() is None, (folder / "worker.log").read_text()
        yield cluster


@contextmanager
def _daemon(log: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=_apart(log.parent, spark_environment())
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_ENDS_WITHIN_S)
        finally:
            process.kill()
            process.wait()


def _apart(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Spark's daemons keep their settings, and what they have to clean up, in a folder of their own."""
    conf, temporary = folder / "conf", folder / "tmp"
    conf.mkdir(exist_ok=True)
    temporary.mkdir(exist_ok=True)
    return {**environment, "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_DIRS": str(temporary)}


def _workers(page: int) -> int:
    """The number of the master's workers, by its status page; 0 while that is not served."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{page}/json/", timeout=10) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return 0
