"""kcat, where it is installed (Debian and Ubuntu: package kcat). Without it these tests are skipped."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from testkit.basics.values import numbered
from testkit.clients.confluent import fill, read_all
from testkit.clients.kcat import KCAT
from testkit.raw.nodes import NODE
from testkit.servers.brokers import NODES, Broker

pytestmark = pytest.mark.skipif(
    KCAT is None, reason="MISSING TEST: kcat is not installed, so nothing is known of it here"
)


def kcat(broker: Broker, *arguments: str, stdin: str = "") -> str:
    assert KCAT is not None
    command = [KCAT, "-q", "-b", broker.bootstrap, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_what_kcat_produced_kcat_consumes(broker: Broker, topic: str, codec: str) -> None:
    lines = [f"key {number}:value {number}" for number in range(50)]
    kcat(broker, "-P", "-t", topic, "-K", ":", "-z", codec, "-H", "a=b", stdin="\n".join(lines) + "\n")
    read = kcat(broker, "-C", "-t", topic, "-o", "beginning", "-e", "-f", "%o %k:%s %h\n")
    assert read.splitlines() == [f"{number} {line} a=b" for number, line in enumerate(lines)]


def test_tombstones_and_empty_values_are_kept_apart(broker: Broker, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-K", ":", "-Z", stdin="gone:\nthere:value\n")
    assert [(it.key(), it.value()) for it in read_all(broker.bootstrap, topic, 2)] == [
        (b"gone", None),
        (b"there", b"value"),
    ]


def test_reading_starts_and_ends_as_the_options_specify(broker: Broker, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(10), timestamp=1_700_000_000_000)
    from_the_end = kcat(broker, "-C", "-t", topic, "-o", "-3", "-e").splitlines()
    assert [line.encode() for line in from_the_end] == numbered(10)[7:]
    some = kcat(broker, "-C", "-t", topic, "-o", "4", "-c", "2").splitlines()
    assert [line.encode() for line in some] == numbered(10)[4:6]
    by_time = kcat(broker, "-C", "-t", topic, "-o", "s@1700000000000", "-e").splitlines()
    assert [line.encode() for line in by_time] == numbered(10)


def test_a_group_reads_everything_once(broker: Broker, topic: str, group: str) -> None:
    fill(broker.bootstrap, topic, numbered(10))
    first = kcat(broker, "-G", group, "-X", "auto.offset.reset=earliest", "-c", "4", topic).splitlines()
    second = kcat(broker, "-G", group, "-X", "auto.offset.reset=earliest", "-c", "6", topic).splitlines()
    assert [line.encode() for line in first + second] == numbered(10)


def test_topics_and_brokers_are_listed(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    listing = json.loads(kcat(broker, "-L", "-J", "-t", topic))
    names = {node["id"]: node["name"] for node in listing["brokers"]}
    assert sorted(names) == list(NODES)
    assert names[NODE] == broker.bootstrap
    assert [it["leader"] in NODES for it in listing["topics"][0]["partitions"]] == [True] * 2


def test_offsets_are_queried_by_time(broker: Broker, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(5), timestamp=1_700_000_000_000)
    assert kcat(broker, "-Q", "-t", f"{topic}:0:1699999999999").split() == [topic, "[0]", "offset", "0"]
    assert kcat(broker, "-Q", "-t", f"{topic}:0:-1").split()[-1] == "5"
