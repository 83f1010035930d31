"""`kwire dlq`: clients find what it sends again, once each, whatever is killed.

Apache Kafka writes dead letters from version 4.4 on (KIP-1191). So a client writes them here, in Kafka's format.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kwire.admin.dead_letters.letters import Span, read_span
from kwire.admin.dead_letters.redriving import COUNT_HEADER
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.offsets import LATEST, IsolationLevel, list_offsets
from testkit.basics.values import numbered
from testkit.basics.waiting import eventually
from testkit.cli.log_dirs import kwire
from testkit.clients.confluent import fill, producing, read_all, send_all
from testkit.fakes.letter_scene import letter_headers
from testkit.raw import topics
from testkit.servers.brokers import Broker, RestartableBroker

COUNT = 400


def run(broker: Broker, *arguments: str, code: int = 0) -> str:
    ran = kwire("dlq", *arguments, "--bootstrap-server", broker.bootstrap)
    assert ran.exit_code == code, ran.output
    return ran.stdout or ran.stderr


def rows(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def write_letters(broker: Broker, topic: str, origin: str, offsets: range, *, copies: bool) -> None:
    with producing(broker.bootstrap) as producer:
        for offset in offsets:
            to = {"key": b"k", "partition": 0} if copies else {"partition": 0}
            headers = [("mine", b"1")] if copies else []
            headers += letter_headers(TopicPartition(origin, 0), offset)
            send_all(producer, topic, [b"%d" % offset if copies else None], headers=headers, **to)


@pytest.mark.parametrize("copies", [True, False], ids=["copied", "referred to"])
def test_letters_are_shown_and_their_records_sent_again_once(
    broker: Broker, new_topic: Callable[..., str], copies: bool
) -> None:
    orders, dlq = new_topic(), new_topic()
    fill(broker.bootstrap, orders, numbered(6), key=b"k", headers=[("mine", b"1")])
    write_letters(broker, dlq, orders, range(1, 4), copies=copies)
    (topic, letters) = rows(run(broker, "list", "--topic", dlq, "--json"))
    assert (topic["letters"], topic["exists"]) == (3, True)
    assert (letters["group_id"], letters["origin_topic"], letters["letters"]) == ("g", orders, 3)
    shown = rows(run(broker, "show", dlq, "--json"))
    assert [(it["origin_offset"], it["is_copy"], it["redriven"]) for it in shown] == [
        (offset, copies, False) for offset in (1, 2, 3)
    ]
    assert "would be sent" in run(broker, "redrive", dlq, "--all", "--dry-run")
    assert "sent" in run(broker, "redrive", dlq, "--partition", "0", "--offset", "1")
    results = rows(run(broker, "redrive", dlq, "--all", "--json"))
    assert [(it["result"], it["letters"]) for it in results] == [("sent", 2), ("skipped", 1)]
    (repeated,) = rows(run(broker, "redrive", dlq, "--all", "--json"))
    assert (repeated["result"], repeated["letters"]) == ("skipped", 3)
    *_, second, first, third = read_all(broker.bootstrap, orders, 9, **{"isolation.level": "read_committed"})
    values = numbered(6) if not copies else [b"%d" % offset for offset in range(6)]
    assert [it.value() for it in (first, second, third)] == [values[1], values[2], values[3]]
    for it in (first, second, third):
        assert (it.key(), it.headers()) == (b"k", [("mine", b"1"), (COUNT_HEADER, b"1")])


@contextmanager
def redriving(broker: Broker, dlq: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "kwire", "dlq", "redrive", dlq, "--all", "--bootstrap-server", broker.bootstrap]
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def sent(broker: Broker, topic: str) -> list[int]:
    """The numbers that a reader of committed records finds at this moment."""
    committed = IsolationLevel.READ_COMMITTED
    with Cluster(broker.bootstrap) as cluster:
        end = list_offsets(cluster, topic, LATEST, isolation_level=committed)[0]
        return [int(it.value or b"") for it in read_span(cluster, Span(TopicPartition(topic, 0), 0, end))]


@pytest.fixture
def letters(broker: Broker, new_topic: Callable[..., str]) -> tuple[str, str]:
    """A topic of origin that is empty, and a dead-letter topic with copies."""
    orders, dlq = new_topic(), new_topic()
    write_many(broker, dlq, orders)
    return orders, dlq


def write_many(broker: Broker, dlq: str, orders: str) -> None:
    with producing(broker.bootstrap) as producer:
        for number in range(COUNT):
            headers = letter_headers(TopicPartition(orders, 0), number)
            producer.produce(dlq, b"%d" % number, key=b"k", partition=0, headers=headers)


def test_a_redrive_that_is_killed_resumes_where_it_stopped(broker: Broker, letters: tuple[str, str]) -> None:
    orders, dlq = letters
    with redriving(broker, dlq, "--rate", "300") as process:
        eventually(lambda: len(sent(broker, orders)) > 20, "some records are sent")
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    counts = {it["result"]: it["letters"] for it in rows(run(broker, "redrive", dlq, "--all", "--json"))}
    assert counts["skipped"] > 20
    assert counts["sent"] + counts["skipped"] == COUNT
    eventually(lambda: len(sent(broker, orders)) >= COUNT, "all are committed")
    assert sent(broker, orders) == list(range(COUNT))


def test_a_redrive_outlives_a_kill_of_the_broker(
    restartable_broker: RestartableBroker, unique: Callable[[str], str]
) -> None:
    orders, dlq = unique("orders"), unique("dlq")
    for name in (orders, dlq):
        topics.create(restartable_broker.bootstrap, name)
    write_many(restartable_broker, dlq, orders)
    with redriving(restartable_broker, dlq, "--rate", "300", "--timeout", "60") as process:
        eventually(lambda: len(sent(restartable_broker, orders)) > 20, "some records are sent")
        assert process.poll() is None
        restartable_broker.kill_and_restart()
        output, _ = process.communicate(timeout=90)
    if process.returncode:
        assert "run the same command again to continue" in output, output
        run(restartable_broker, "redrive", dlq, "--all")
    eventually(lambda: len(sent(restartable_broker, orders)) >= COUNT, "all are committed")
    assert sent(restartable_broker, orders) == list(range(COUNT))
