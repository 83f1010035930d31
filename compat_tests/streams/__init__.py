"""Kafka Streams with exactly_once_v2: a word count of ours (WordCount.java), in a process that can be killed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devtools.jars import classpath, compile_java
from devtools.java import SHORT_LIVED, java, java_environment
from devtools.places import REPOSITORY

_SOURCE = Path(__file__).parent / "WordCount.java"
_LOGGING = REPOSITORY / "devtools" / "log4j2-tool.properties"
_JARS = "kafka-streams-4.3.1"
_OPTIONS = ("-Xmx256m", *SHORT_LIVED)


class WordCount:
    """Counts the words of `source` into `target`, a record for each change of a count."""

    def __init__(self, bootstrap: str, name: str, source: str, target: str, folder: Path) -> None:
        self.log_file = folder / "streams.log"
        jars = classpath(_JARS)
        self._environment = java_environment() | {
            "CLASSPATH": os.pathsep.join([str(compile_java(_SOURCE, jars)), jars])
        }
        log = f"-Dlog4j2.configurationFile={_LOGGING}"
        arguments = [bootstrap, name, source, target, str(folder / "state")]
        self._command = [str(java()), *_OPTIONS, log, "WordCount", *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    def kill(self) -> None:
        """SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    @contextmanager
    def running(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.kill()
