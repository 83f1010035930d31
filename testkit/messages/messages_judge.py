"""Kafka's own message classes as the judge of ours: the other end of MessagesJudge.java."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from devtools.jars import classpath, compile_java
from devtools.java import SHORT_LIVED, java, java_environment
from testkit.messages.catalogue import Entry
from testkit.messages.values import difference, json_of

# Where each kind of message has its Java classes.
_PACKAGES = {
    "consumer_group": "org.apache.kafka.coordinator.group.generated",
    "consumer_offsets": "org.apache.kafka.coordinator.group.generated",
    "share_group": "org.apache.kafka.coordinator.group.generated",
    "streams_group": "org.apache.kafka.coordinator.group.generated",
    "transaction_state": "org.apache.kafka.coordinator.transaction.generated",
    "share_group_state": "org.apache.kafka.coordinator.share.generated",
    "remote_log_metadata": "org.apache.kafka.server.log.remote.metadata.storage.generated",
    "producer_snapshot": "org.apache.kafka.server.log.remote.metadata.storage.generated",
}


def java_class(entry: Entry) -> str:
    module = entry.module.rpartition(".")[2]
    if entry.message.kind in {"request", "response"}:
        return f"org.apache.kafka.common.message.{entry.name}Data"
    if module.startswith("metadata_"):
        return f"org.apache.kafka.common.metadata.{entry.name}"
    return f"{_PACKAGES.get(module, 'org.apache.kafka.common.message')}.{entry.name}"


@attrs.frozen
class KafkaApi:
    """An entry of Kafka's ApiKeys."""

    key: int
    for_clients: bool
    header_versions: dict[int, tuple[int, int]]  # by version: of the request, of the response


class Judge:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def check(self, entry: Entry, version: int, value: Any, ours: bytes) -> None:
        """Kafka writes the same bytes for `value`, and reads from ours what we meant."""
        meant = json_of(entry, value, version, records=True)
        self.check_json(java_class(entry), version, meant, ours, json_of(entry, value, version, records=False))

    def check_json(
        self, name: str, version: int, meant: dict[str, Any], ours: bytes, expected: dict[str, Any] | None = None
    ) -> None:
        """The same for any of Kafka's classes. `expected` is its converter's result for `meant`, if that differs."""
        answer = self._request(f"{name} {version} {ours.hex()} {json.dumps(meant)}")
        assert not answer.startswith("!"), answer
        written, rewritten, is_equal, json_read = answer.split(" ", 3)
        read, expected = json.loads(json_read), meant if expected is None else expected
        assert read == expected, f"Kafka reads that {difference(read, expected)}"
        assert (rewritten, is_equal) == (ours.hex(), "true"), f"Kafka reads something else than {meant}"
        assert written == ours.hex(), f"Kafka writes {meant} otherwise"

    def apis(self) -> list[KafkaApi]:
        apis = []
        for text in self._request("apis").split(" "):
            key, for_clients, *versions = text.split(",")
            headers = [tuple(map(int, version.split(":"))) for version in versions]
            apis.append(
                KafkaApi(int(key), for_clients == "true", {v: (request, reply) for v, request, reply in headers})
            )
        return apis

    def _request(self, line: str) -> str:
        stdin, answers = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert answers is not None
        stdin.write(line + "\n")
        stdin.flush()
        answer = answers.readline().rstrip("\n")
        assert answer, "the judge is gone"
        return answer


@contextmanager
def running_judge() -> Iterator[Judge]:
    jars = classpath("kafka-clients-4.4")
    classes = compile_java(Path(__file__).with_name("MessagesJudge.java"), jars)
    command = [str(java()), "-Xmx256m", *SHORT_LIVED, "-cp", f"{classes}:{jars}", "MessagesJudge"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=java_environment(),
    ) as process:
        try:
            yield Judge(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=30)
