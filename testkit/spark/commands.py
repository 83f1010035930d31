"""Spark's and kwire's commands as processes of their own, on this machine alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from devtools.jars import jars
from devtools.java import java_environment
from devtools.ports import LOOPBACK
from devtools.spark_session import QUICK

SPARK = Path(pyspark.__file__).parent

_ENDS_WITHIN_S = 240


def spark_environment() -> dict[str, str]:
    """Java, the kwire and Spark of this Python, and nothing but loopback."""
    java = java_environment()
    return {
        **java,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(SPARK / "bin"), java["PATH"]]),
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_TOOL_OPTIONS": " ".join(QUICK),
    }


def jar_files() -> str:
    """The jars that jobs need, as spark.jars takes it."""
    return ",".join(map(str, jars("spark-kafka") + jars("spark-iceberg")))


def kwire(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kwire", *arguments]


def run(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs in `folder` to the end, with any exit code."""
    return subprocess.run(
        command,
        cwd=folder,
        env=spark_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_ENDS_WITHIN_S,
        check=False,
    )
