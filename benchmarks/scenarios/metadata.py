"""Changes of the metadata: waits of other requests during thousands of changes, and the cost of a long history.

A small Produce leaves every millisecond, as long as the one before is answered. The figure is the longest that one of
them waited while a large request was carried out on another connection, and the tenth of a second after it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.wire import ApiMessage

from benchmarks.bench import Bench, Figures, Round, scenario
from benchmarks.load.answers import BadAnswer, check_produce
from benchmarks.load.connection import Connection
from benchmarks.load.requests import decode, encode
from benchmarks.scenarios.raw import small_produce

TOPICS, PARTITIONS = 200, 1000
PASSING_TOPICS, PER_REQUEST = 10_000, 100
PERIOD_S = 0.001
AFTERWARDS_S = 0.1
TOPIC, SET = 2, 0
TIMEOUT_MS = 60_000


class _Knocker:
    """Produces a record every millisecond, in a thread; `longest_s` is the longest wait for an answer."""

    def __init__(self, port: int) -> None:
        self.longest_s = 0.0
        self._connection = Connection(port)
        self._check = check_produce("t", 1)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Knocker:
        self._thread.start()
        time.sleep(AFTERWARDS_S)
        self.longest_s = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(AFTERWARDS_S)
        self._is_over.set()
        self._thread.join()
        self._connection.__exit__(None, None, None)

    def _run(self) -> None:
        [frame, *_] = small_produce()
        while not self._is_over.is_set():
            began = time.perf_counter()
            answer = self._connection.call(frame)
            took = time.perf_counter() - began
            self.longest_s = max(self.longest_s, took)
            self._check(answer, 0, len(answer))
            time.sleep(max(0.0, PERIOD_S - took))


def _creation(topics: dict[str, int]) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, count, 1) for name, count in topics.items()], TIMEOUT_MS)


def _deletion(names: list[str]) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=names, timeout_ms=TIMEOUT_MS)


def _configuration(names: list[str]) -> IncrementalAlterConfigsRequest:
    change = [AlterableConfig("retention.ms", config_operation=SET, value="86400000")]
    return IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC, name, change) for name in names])


def _errors(answer: object) -> set[int]:
    for results in ("topics", "responses", "results"):
        if (found := getattr(answer, results, None)) is not None:
            return {it.error_code for it in found}
    raise AssertionError(f"no results in {answer}")


@scenario(
    "beside-metadata",
    f"the longest wait of a small Produce while {TOPICS} topics, or {PARTITIONS:,} partitions, come, change and go",
)
def beside_metadata(bench: Bench) -> Round:
    bench.create({"t": 1})
    bench.warm(small_produce(), check_produce("t", 1))
    topics, partitions = bench.options.scaled(TOPICS), bench.options.scaled(PARTITIONS)
    small = [f"small-{number}" for number in range(topics)]

    def longest_wait_ms(request: ApiMessage) -> float:
        frame = encode(request)
        with Connection(bench.broker.port) as connection, _Knocker(bench.broker.port) as knocker:
            answer = connection.call(frame)
        if errors := _errors(decode(answer, request.api_key)) - {0}:
            raise BadAnswer(f"{type(request).__name__}: {errors}")
        return knocker.longest_s * 1000

    steps: dict[str, Callable[[], ApiMessage]] = {
        "create_wait_ms": lambda: _creation({"large": partitions}),
        "grow_wait_ms": lambda: CreatePartitionsRequest(
            [CreatePartitionsTopic("large", 2 * partitions, None)], TIMEOUT_MS
        ),
        "delete_wait_ms": lambda: _deletion(["large"]),
        "create_topics_wait_ms": lambda: _creation(dict.fromkeys(small, 1)),
        "configure_topics_wait_ms": lambda: _configuration(small),
        "delete_topics_wait_ms": lambda: _deletion(small),
    }

    def measure() -> Figures:
        return {name: longest_wait_ms(request()) for name, request in steps.items()}

    return measure


@scenario(
    "passing-topics",
    f"{PASSING_TOPICS:,} topics are created and deleted, {PER_REQUEST} at a time; what is left of them, and a restart",
    alone=True,
)
def passing_topics(bench: Bench) -> Round:
    began = time.monotonic()
    with Connection(bench.broker.port) as connection:
        for first in range(0, bench.options.scaled(PASSING_TOPICS, least=PER_REQUEST), PER_REQUEST):
            topics = [f"passing-{number}" for number in range(first, first + PER_REQUEST)]
            for request in (_creation(dict.fromkeys(topics, 1)), _deletion(topics)):
                if errors := _errors(connection.request(request)) - {0}:
                    raise BadAnswer(f"{type(request).__name__}: {errors}")
    bench.figures["create_s"] = time.monotonic() - began

    def measure() -> Figures:
        bench.broker.stop()
        folder = bench.broker.data / "__cluster_metadata-0"
        kept = [path.stat().st_size for path in folder.iterdir() if path.suffix in (".log", ".checkpoint")]
        again = bench.lab.start(bench.spec, bench.broker.root)
        again.stop()
        return {
            "metadata_kib": sum(kept) / 1024,
            "restart_s": again.startup_s,
            "restart_cpu_s": again.startup_cpu_s,
        }

    return measure
