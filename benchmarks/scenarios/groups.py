"""A consumer group of librdkafka's consumers."""

from __future__ import annotations

import statistics
import time
from itertools import count

from confluent_kafka import Consumer

from benchmarks.bench import Bench, Figures, Round, scenario
from benchmarks.load.answers import BadAnswer

MEMBERS, PARTITIONS = 10, 20
GROUPS_IN_A_ROUND, GROUPS_TO_WARM = 7, 4
SETTLE_WITHIN_S = 60.0


@scenario(
    "group-join",
    f"{MEMBERS} librdkafka consumers join a group at once; until {PARTITIONS} partitions are assigned, "
    f"median of {GROUPS_IN_A_ROUND} groups",
)
def group_join(bench: Bench) -> Round:
    bench.create({"t": PARTITIONS})
    bench.warm_produce("t", PARTITIONS, share=0.3)
    names = (f"group-{number}" for number in count())
    for _ in range(bench.options.scaled(GROUPS_TO_WARM)):
        _join(bench.bootstrap, next(names))

    def measure() -> Figures:
        start = bench.meter.read()
        groups = bench.options.scaled(GROUPS_IN_A_ROUND)
        times_s = [_join(bench.bootstrap, next(names)) for _ in range(groups)]
        usage = bench.meter.since(start)
        return {
            "join_s": statistics.median(times_s),
            "cpu_ms_per_member": usage.cpu_s * 1e3 / (groups * MEMBERS),
            "others_core": usage.others_s / usage.seconds,
        }

    return measure


def _join(bootstrap: str, group: str) -> float:
    """Seconds until each member has its two partitions."""
    config: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 200,
        "log_level": 0,
    }
    began_s = time.monotonic()
    members = [Consumer(config) for _ in range(MEMBERS)]
    try:
        for member in members:
            member.subscribe(["t"])
        while time.monotonic() - began_s < SETTLE_WITHIN_S:
            for member in members:
                member.poll(0.005)
            if all(len(member.assignment()) == PARTITIONS // MEMBERS for member in members):
                return time.monotonic() - began_s
        raise BadAnswer(f"the group was not settled after {SETTLE_WITHIN_S:.0f} s")
    finally:
        for member in members:
            member.close()
