"""Apache Kafka's programs as they are meant to run: with the JVM flags of its own start scripts.

`devtools.apache_kafka` starts brokers for tests and makes them quick to start; here they must be quick for ever. The
jars and the Java are those of devtools.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import devtools
from devtools.apache_kafka import VERSION, run_tool
from devtools.jars import classpath
from devtools.java import java, java_environment

_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_BROKER_HEAP = ("-Xms1G", "-Xmx1G")
_TOOL_HEAP = ("-Xmx512M",)
_CLUSTER_ID = "a3dpcmUtYmVuY2htYXJrcw"

OnLine = Callable[[str], bool | None]
"""Gets each line of a tool's output when it comes; True ends the tool."""


class ToolFailed(Exception):
    """One of Kafka's tools failed, took too long or printed nothing useful; the message has its last output."""


def environment() -> dict[str, str]:
    """Returns the environment, which has the class path, so that a command line stays readable."""
    return java_environment() | {"CLASSPATH": classpath(f"kafka-{VERSION}")}


def broker_command(properties: Path, log: Path) -> list[str]:
    logging = [f"-Dkwire.log={log}", _log4j("broker")]
    return [str(java()), *_BROKER_HEAP, *_FLAGS, *logging, "kafka.Kafka", str(properties)]


def format_storage(properties: Path) -> None:
    """Formats a new log dir, as Kafka requires once."""
    run_tool("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", properties)


def live_heap_mib(pid: int) -> float:
    """Runs a full collection of a broker's heap, and returns the size of what is left."""
    jcmd = java().with_name("jcmd")
    histogram = subprocess.run(
        [jcmd, str(pid), "GC.class_histogram"], capture_output=True, text=True, check=True
    ).stdout
    name, _, size_bytes = histogram.split("\n")[-2].split()
    assert name == "Total"
    return int(size_bytes) / 2**20


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")


def run_load(main_class: str, *arguments: str, on_line: OnLine | None = None, timeout_s: float = 180.0) -> list[str]:
    """Runs one of Kafka's performance tools on this process's cores; returns its output.

    One that `on_line` ended has done what it should; one that ran into the timeout has not.
    """
    command = [str(java()), *_TOOL_HEAP, *_FLAGS, _log4j("tool"), main_class, *arguments]
    lines: list[str] = []
    timed_out = threading.Event()
    ended_here = False
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    ) as process:

        def end_it() -> None:
            timed_out.set()
            process.kill()

        timer = threading.Timer(timeout_s, end_it)
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                if on_line is not None and not ended_here and on_line(lines[-1]):
                    ended_here = True
                    process.kill()
        finally:
            timer.cancel()
            if process.poll() is None:
                process.kill()
        failed = process.wait() != 0 and not ended_here
    if failed or timed_out.is_set():
        why = f"took longer than {timeout_s:.0f} s" if timed_out.is_set() else "failed"
        raise ToolFailed("\n".join([f"{main_class} {why}", *lines[-10:]]))
    return lines


def _log4j(kind: str) -> str:
    return f"-Dlog4j2.configurationFile={Path(devtools.__file__).with_name(f'log4j2-{kind}.properties')}"
