"""A Spark session for the jobs, and a check of what it requires.

On a laptop the session is `local[*]`, in its own Java process. With a master, or under `spark-submit`, the cluster
provides it. The connector, Iceberg and Spark's Avro are fetched by their Maven coordinates, unless the configuration
sets them (`spark.jars`, `spark.jars.packages`).
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kwire.pipeline.errors import PipelineError, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    "org.apache.spark:spark-avro_2.13:4.0.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    "org.xerial:sqlite-jdbc:3.46.1.3",
)
EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_NEEDED: Final = {
    "Spark's Kafka connector": "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    "Iceberg for Spark": EXTENSIONS,
}
"""The packages that every job needs, and a class of each. Avro and SQLite's driver are only for some jobs."""
OLDEST_JAVA, NEWEST_JAVA = 17, 23
SMALL_BATCHES: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}
"""Settings of jobs whose Python tasks get whole records, of up to a megabyte: a batch must fit into memory."""

_PYTHON_PACKAGES = ("pyspark", "pyiceberg", "pyarrow", "sqlalchemy", "yaml", "prometheus_client")
_JAVA_ANSWERS_WITHIN_S = 60


def settings(given: Mapping[str, str], *, master: str | None, name: str) -> dict[str, str]:
    """The session's configuration: kwire's settings, overridden by the user's. Raises PipelineError."""
    if under_spark_submit() and master is not None:
        raise PipelineError(
            f"spark-submit has chosen the master already: give it --master {master}, before the program"
        )
    chosen = {
        "spark.app.name": name,
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.session.timeZone": "UTC",
        # A micro-batch of a job has a few megabytes to sort: with Spark's default of 200, most tasks would be empty.
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.streaming.stopTimeout": "60s",
        # Several tables of one job take turns by the task, not by the batch.
        "spark.scheduler.mode": "FAIR",
    }
    if not under_spark_submit():
        chosen["spark.master"] = master or "local[*]"
        chosen["spark.ui.showConsoleProgress"] = "false"
        if chosen["spark.master"].startswith("local"):
            chosen["spark.ui.enabled"] = "false"
            chosen["spark.driver.host"] = "127.0.0.1"
            chosen["spark.driver.bindAddress"] = "127.0.0.1"
        log4j = files("kwire.pipeline").joinpath("log4j2.properties")
        chosen["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={log4j}"
        if not {"spark.jars", "spark.jars.packages"} & set(given):
            chosen["spark.jars.packages"] = ",".join(PACKAGES)
    return {**chosen, **given}


def start_session(conf: Mapping[str, str]) -> SparkSession:
    """Starts the session. Raises PipelineError, in one line, if that fails."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    if not under_spark_submit():
        check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The job reports the error of a batch; py4j and pyspark would print it too, with its traceback.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        with _java_on_standard_error():
            spark = builder.getOrCreate()
    except (PySparkException, Py4JError, RuntimeError) as error:
        why = first_line(error).rstrip(".")
        master = conf.get("spark.master", "local")
        where = "" if master.startswith("local") else f" on {master} (is its address right, and is it up?)"
        raise PipelineError(f"Spark does not start{where}: {why}. What it printed above says more") from None
    try:
        _check_jars(spark)
    except PipelineError:
        stop_session(spark)
        raise
    return spark


@contextmanager
def _java_on_standard_error() -> Iterator[None]:
    """Lets a Java process that is started meanwhile write to standard error: standard output is the command's own.

    Otherwise Ivy would print the path of its settings between a job's lines of JSON.
    """
    sys.stdout.flush()
    saved_fd = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(saved_fd, 1)
        os.close(saved_fd)


def _check_jars(spark: SparkSession) -> None:
    """Raises PipelineError if Spark lacks classes that the jobs use."""
    java = spark._jvm
    assert java is not None
    missing = [what for what, name in _NEEDED.items() if not java.org.apache.spark.util.Utils.classIsLoadable(name)]
    if missing:
        raise PipelineError(f"{' and '.join(missing)} not found: {_how_to_give_jars()}")


def _how_to_give_jars() -> str:
    packages = ",".join(PACKAGES)
    if under_spark_submit():
        return f"give spark-submit their files (--jars), or --packages {packages}"
    return f"give their files (--conf spark.jars=FILE,...), or --conf spark.jars.packages={packages}"


def stop_session(spark: SparkSession) -> None:
    """Ends the session, and its Java process if this process has started it."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    spark.stop()
    process = getattr(gateway, "proc", None)
    if gateway is not None and process is not None:
        gateway.shutdown()
        process.stdin.close()
        process.wait(_JAVA_ANSWERS_WITHIN_S)
        SparkContext._gateway = None
        SparkContext._jvm = None


def under_spark_submit() -> bool:
    """Returns True if spark-submit started this process: then it provides the cluster's settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def check_packages(names: Sequence[str] = _PYTHON_PACKAGES, *, whose: str = "the jobs need") -> None:
    """Raises PipelineError when Python packages, by default those of the jobs, are not installed."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise PipelineError(f"{', '.join(missing)} not found: {whose} pip install 'kwire[pipeline]'")


def check_java() -> None:
    """Raises PipelineError unless there is a Java that Spark 4.0 runs on."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    wanted = f"Spark needs Java {OLDEST_JAVA} to {NEWEST_JAVA} (apt install openjdk-17-jre-headless, or JAVA_HOME)"
    if program is None:
        raise PipelineError(f"java not found: {wanted}")
    try:
        said = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_JAVA_ANSWERS_WITHIN_S,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        raise PipelineError(f"{program} does not run: {wanted}") from None
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)$", said, re.MULTILINE)
    if version is None or not OLDEST_JAVA <= int(version[1]) <= NEWEST_JAVA:
        found = "of a version that it does not print" if version is None else f"Java {version[1]}"
        raise PipelineError(f"{program} is {found}: {wanted}")
