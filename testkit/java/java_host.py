"""Kafka's own clients and command line tools, of Apache Kafka's release, in one Java process (java/ToolHost.java)."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import attrs

from devtools.jars import classpath, compile_java
from devtools.java import SHORT_LIVED, java, java_environment
from devtools.places import REPOSITORY

_SOURCES = Path(__file__).parent
LOGGING = REPOSITORY / "devtools" / "log4j2-tool.properties"
JARS = "kafka-4.3.1"
OPTIONS = ("-Xmx256m", *SHORT_LIVED)

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
ACLS = "org.apache.kafka.tools.AclCommand"
DELEGATION_TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
STREAMS_GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
ALL_GROUPS = "org.apache.kafka.tools.GroupsCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSOLE_SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
VERIFIABLE_SHARE_CONSUMER = "org.apache.kafka.tools.VerifiableShareConsumer"
SHARE_CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ShareConsumerPerformance"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
VERIFY_REPLICAS = "org.apache.kafka.tools.ReplicaVerificationTool"


@attrs.frozen
class Ended:
    """The exit code of a program, and its output."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.out.splitlines() if line.strip()]


class JavaHost:
    """Runs the main methods of Java classes, one after the other."""

    def __init__(self, requests: IO[str], answers: IO[str]) -> None:
        self._requests = requests
        self._answers = answers

    def run(self, main_class: str, *arguments: str | Path, stdin: str = "") -> Ended:
        parts = (main_class, stdin, *map(str, arguments))
        self._requests.write(" ".join(base64.b64encode(part.encode()).decode() for part in parts) + "\n")
        self._requests.flush()
        answer = self._answers.readline()
        assert answer, "the Java process ended"
        code, out, err = answer.rstrip("\n").split(" ")
        return Ended(int(code), base64.b64decode(out).decode(), base64.b64decode(err).decode())

    def succeed(self, main_class: str, *arguments: str | Path, stdin: str = "") -> Ended:
        ended = self.run(main_class, *arguments, stdin=stdin)
        assert ended.code == 0, f"{main_class} ended with {ended.code}:\n{ended.out}\n{ended.err}"
        return ended


@contextmanager
def java_host() -> Iterator[JavaHost]:
    jars = classpath(JARS)
    classes = compile_java(_SOURCES, jars)
    # The class path travels in the environment, so that the command stays readable.
    environment = java_environment() | {"CLASSPATH": os.pathsep.join([str(classes), jars])}
    log = f"-Dlog4j2.configurationFile={LOGGING}"
    command = [str(java()), *OPTIONS, log, "ToolHost"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield JavaHost(process.stdin, process.stdout)
        finally:
            process.kill()


@contextmanager
def output_of(main_class: str, *arguments: str) -> Iterator[IO[str]]:
    """The standard output of a program that runs on its own, until the end of the block."""
    environment = java_environment() | {"CLASSPATH": classpath(JARS)}
    log = f"-Dlog4j2.configurationFile={LOGGING}"
    command = [str(java()), *OPTIONS, log, main_class, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()
