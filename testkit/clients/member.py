"""A member of a group in a process of its own, so that a test can let it crash.

    python -m testkit.clients.member '{"client": "aiokafka", "bootstrap": "...", "group": "g", ...}'

It joins, polls for ever, and prints its partitions as a JSON list, a line each time they change.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import Any


class _Printer:
    """Prints the partitions when they are others than before."""

    def __init__(self) -> None:
        self._printed: list[int] = []

    def print_changes(self, partitions: Iterable[Any]) -> None:
        now = sorted(partition.partition for partition in partitions)
        if now != self._printed:
            self._printed = now
            print(json.dumps(now), flush=True)  # noqa: T201 - this is what it is for


def _kafka_python(bootstrap: str, group: str, topic: str, config: dict[str, Any]) -> None:
    from testkit.clients.kafka_python import consuming

    with consuming(bootstrap, topic, group_id=group, **config) as consumer:
        printer = _Printer()
        while True:
            consumer.poll(timeout_ms=2_000)  # long enough for a join: see kafka_python_groups.py
            printer.print_changes(consumer.assignment())


def _confluent(bootstrap: str, group: str, topic: str, config: dict[str, Any]) -> None:
    from testkit.clients.confluent import consuming

    with consuming(bootstrap, topic, **{"group.id": group, **config}) as consumer:
        printer = _Printer()
        while True:
            consumer.poll(0.05)
            printer.print_changes(consumer.assignment())


async def _aiokafka(bootstrap: str, group: str, topic: str, config: dict[str, Any]) -> None:
    from testkit.clients.aio import consuming

    async with consuming(bootstrap, topic, group_id=group, **config) as consumer:
        printer = _Printer()
        while True:
            await consumer.getmany(timeout_ms=50)
            printer.print_changes(consumer.assignment())


def main() -> None:
    wanted = json.loads(sys.argv[1])
    client, arguments = wanted["client"], [wanted[name] for name in ("bootstrap", "group", "topic", "config")]
    match client:
        case "kafka-python":
            _kafka_python(*arguments)
        case "confluent":
            _confluent(*arguments)
        case "aiokafka":
            asyncio.run(_aiokafka(*arguments))
        case _:
            raise SystemExit(f"no client {client!r}")


if __name__ == "__main__":
    main()
