"""The one Spark session of a test run, with Spark's own Kafka connector.

Spark lives in a Java process that pyspark starts and talks to through a socket. What makes that process fit for tests:

* The connector is handed over as jar files that devtools has fetched and checked. When they cannot be had, every test
  fails.
* It reaches itself by the loopback address, whatever the machine's name is, and everything it writes is in one
  folder.
* With `quick_files` it makes files by itself (LocalFiles.java). Hadoop starts a chmod or two readlinks for each file of
  a micro-batch, and these took an eighth of all CPU time.
* It ends when this process lets go of its standard input. `stop()` does so and waits: a process left to the garbage
  collector is a ResourceWarning, and outlives the brokers of the tests for a while. So are the sockets that pyspark
  leaves behind, hence the collection at a moment when no test is blamed for them.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pyspark
from pyspark.sql import SparkSession

from devtools.jars import compile_java, jars
from devtools.java import SHORT_LIVED, java_environment
from kwire.pipeline.session import EXTENSIONS, stop_session

# Each query is new code that runs for a second: compiling it thoroughly costs half of all CPU time and saves little.
# Without that compiler Java keeps only 48 MB of code, which hundreds of queries fill: it would then sweep all the time.
QUICK = [*SHORT_LIVED, "-XX:ReservedCodeCacheSize=240m"]

# Errors only, and these are seen where a test fails: pytest keeps what the process prints.
_LOG4J = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex{20}
"""


@contextmanager
def spark_session(
    folder: Path, java_options: Sequence[str] = QUICK, *, quick_files: bool = False
) -> Iterator[SparkSession]:
    """A session that keeps its files in `folder`."""
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J)
    temporary = folder / "tmp"
    temporary.mkdir()
    options = [*java_options, f"-Dlog4j2.configurationFile={log4j}", f"-Djava.io.tmpdir={temporary}"]
    settings: dict[str, bool | float | int | str | None] = {
        "spark.jars": ",".join(map(str, jars("spark-kafka") + jars("spark-iceberg"))),
        "spark.sql.extensions": EXTENSIONS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.local.dir": str(temporary),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
        "spark.sql.streaming.stopTimeout": "30s",
    }
    if quick_files:
        settings |= _quick_files()
    environment = {**java_environment(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with mock.patch.dict(os.environ, environment):
        builder = SparkSession.builder.master("local[2]").appName("spark_tests")
        session = builder.config(map=settings).getOrCreate()
        try:
            yield session
        finally:
            stop(session)


def _quick_files() -> dict[str, str]:
    hadoop = os.pathsep.join(map(str, sorted(Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar"))))
    return {
        "spark.driver.extraClassPath": str(compile_java(Path(__file__).with_name("LocalFiles.java"), hadoop)),
        "spark.hadoop.fs.file.impl": "LocalFiles",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "LocalFiles$Context",
    }


def stop(session: SparkSession) -> None:
    """Ends the session and its Java process."""
    stop_session(session)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
