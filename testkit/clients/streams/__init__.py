"""Kafka Streams with exactly_once_v2: a word count of ours (WordCount.java).

It runs in a process that can be killed, or as several instances in one process (Instances.java). Its group speaks the
classic protocol or the streams protocol (KIP-1071).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from devtools.jars import classpath, compile_java
from devtools.java import SHORT_LIVED, java, java_environment
from devtools.places import REPOSITORY
from testkit.raw import groups

CLASSIC: Final = groups.CLASSIC
STREAMS: Final = "streams"
PROTOCOLS: Final = (CLASSIC, STREAMS)
STORE: Final = "counts"

_SOURCES = Path(__file__).parent
_LOGGING = REPOSITORY / "devtools" / "log4j2-tool.properties"
_JARS = "kafka-streams-"
VERSION: Final = "4.3.1"
_OPTIONS = ("-Xmx256m", *SHORT_LIVED)
_SESSION_MS = 2_000


def changelog(application: str) -> str:
    return f"{application}-{STORE}-changelog"


def repartition(application: str) -> str:
    return f"{application}-{STORE}-repartition"


class _Program:
    """A Java program with the arguments of the word count."""

    main_class = ""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        source: str,
        target: str,
        folder: Path,
        protocol: str,
        *,
        version: str = VERSION,
    ) -> None:
        """`name` is that of the application, of its group, and begins the names of its topics."""
        self.log_file = folder / "streams.log"
        if protocol == STREAMS:
            # Of a group of the classic protocol, its members choose it.
            groups.configure(bootstrap, name, "streams.session.timeout.ms", _SESSION_MS)
        jars = classpath(f"{_JARS}{version}")
        self._environment = java_environment() | {
            "CLASSPATH": os.pathsep.join([str(compile_java(_SOURCES, jars)), jars])
        }
        log = f"-Dlog4j2.configurationFile={_LOGGING}"
        arguments = [bootstrap, name, source, target, str(folder / "state"), protocol]
        self._command = [str(java()), *_OPTIONS, log, self.main_class, *arguments]


class WordCount(_Program):
    """Counts the words of `source` into `target`, a record for each change of a count."""

    main_class = "WordCount"
    _process: subprocess.Popen[bytes] | None = None

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


class Instances(_Program):
    """Instances of the word count, by name. The name is the host of the instance's endpoint, too."""

    main_class = "Instances"
    _process: subprocess.Popen[str]

    @contextmanager
    def running(self) -> Iterator[None]:
        with (
            self.log_file.open("ab") as log,
            subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
            ) as process,
        ):
            self._process = process
            try:
                yield
            finally:
                process.kill()

    def start(self, name: str) -> None:
        self._request("start", name)

    def leave(self, name: str) -> None:
        self._request("leave", name)

    def tasks(self, name: str) -> tuple[set[str], set[str]]:
        """Active and standby tasks, such as "1_0"."""
        active, standby = self._request("tasks", name)
        return _set(active), _set(standby)

    def restored(self, name: str) -> int:
        """Returns the number of records that it has restored for active tasks."""
        (count,) = self._request("restored", name)
        return int(count)

    def count(self, name: str, word: str) -> int | None:
        """Returns the count of its own active tasks; None if they do not have the word."""
        (count,) = self._request("count", name, word)
        return None if count == "-" else int(count)

    def where(self, name: str, word: str) -> tuple[str, set[str]]:
        """Returns the instance with the word's active task, and those with a standby task, by the metadata of instance
        `name`.
        """
        active, standby = self._request("where", name, word)
        return active, _set(standby)

    def hosts(self, name: str) -> dict[str, tuple[set[str], set[str]]]:
        """Returns the partitions of each instance's active and standby tasks that have the store, by the metadata of
        `name`.
        """
        (hosts,) = self._request("hosts", name)
        found = {}
        for host in _set(hosts):
            its_name, _, partitions = host.partition("=")
            active, _, standby = partitions.partition("/")
            found[its_name] = (_set(active, ";"), _set(standby, ";"))
        return found

    def _request(self, *command: str) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(command) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the Java process ended: {self.log_file.read_text()[-4000:]}"
        return answer.split()


def _set(text: str, separator: str = ",") -> set[str]:
    return set() if text == "-" else set(text.split(separator))
