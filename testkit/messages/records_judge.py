"""Kafka's own record classes as the judge of ours: the other end of RecordsJudge.java."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kwire_protocol.records import Record

from devtools.jars import classpath, compile_java
from devtools.java import SHORT_LIVED, java, java_environment


class Judge:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def request(self, *words: object) -> str:
        """Returns Kafka's answer. Booleans are sent as integers."""
        stdin, answers = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert answers is not None
        stdin.write(" ".join(str(int(word) if isinstance(word, bool) else word) for word in words) + "\n")
        stdin.flush()
        answer = answers.readline()
        assert answer, "the judge is gone"
        return answer.rstrip("\n")

    def batch(self, *words: object) -> bytes:
        answer = self.request(*words)
        assert not answer.startswith("!"), answer
        return bytes.fromhex(answer)

    def read(self, batch: bytes) -> tuple[list[int], list[Record]] | None:
        """Returns the records that Kafka reads in a batch, or None when it refuses it."""
        answer = self.request("read", batch.hex())
        if answer.startswith("!"):
            return None
        header, *records = answer.split(" ")
        return [int(field) for field in header.split(",")], [_record(text) for text in records]


def record_text(record: Record) -> str:
    fields = [str(record.offset), str(record.timestamp), _hex(record.key), _hex(record.value)]
    for name, value in record.headers:
        fields += [name.encode().hex(), _hex(value)]
    return ",".join(fields)


def record_texts(records: Iterable[Record]) -> list[str]:
    return [record_text(record) for record in records]


def _record(text: str) -> Record:
    offset, timestamp, key, value, *rest = text.split(",")
    headers = tuple(
        (bytes.fromhex(name).decode(), _bytes(value)) for name, value in zip(rest[::2], rest[1::2], strict=True)
    )
    return Record(int(offset), int(timestamp), _bytes(key), _bytes(value), headers)


def _hex(value: bytes | None) -> str:
    return "-" if value is None else value.hex()


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text)


@contextmanager
def running_judge() -> Iterator[Judge]:
    jars = classpath("kafka-clients-4.4")
    classes = compile_java(Path(__file__).with_name("RecordsJudge.java"), jars)
    command = [str(java()), "-Xmx128m", *SHORT_LIVED, "-cp", f"{classes}:{jars}", "RecordsJudge"]
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
