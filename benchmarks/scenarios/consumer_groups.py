"""Consumer groups of KIP-848: heartbeats, a rebalance, memory.

Members send raw requests, many on each connection (`load/consumer_members.py`). Sessions do not end while another
broker has its turn: they last an hour. All else that differs from the brokers' defaults is in a scenario's settings.
"""

from __future__ import annotations

import statistics
from itertools import count

from benchmarks import machine
from benchmarks.bench import Bench, Figures, Round, latencies, scenario, work
from benchmarks.brokers import kafka_java
from benchmarks.load.answers import check_consumer_heartbeat
from benchmarks.load.consumer_members import ConsumerGroup, Subscription
from benchmarks.load.members import wait_for_coordinator
from benchmarks.load.requests import encode, numbered

CONNECTIONS = 32
MEMBERS, TOPICS, PARTITIONS_OF_TOPIC = 1000, 10, 200
SETTLING_MEMBERS, LEAVING_MEMBERS, SETTLING_PARTITIONS = 100, 10, 400
SETTLINGS_IN_A_ROUND = 5
INTERVAL_MS, QUIET_S = 100, 1.5
SETTLINGS_TO_WARM = 10
MANY_TOPICS = 2000
MEMBERS_WITH_MEMORY = (1000, 5000)

HOUR_MS = "3600000"
LONG_SESSIONS = {"group.consumer.max.session.timeout.ms": HOUR_MS, "group.consumer.session.timeout.ms": HOUR_MS}
SHORT_INTERVAL = {
    "group.consumer.min.heartbeat.interval.ms": str(INTERVAL_MS),
    "group.consumer.heartbeat.interval.ms": str(INTERVAL_MS),
}

_numbers = count()


def _group(bench: Bench, subscription: Subscription) -> ConsumerGroup:
    """A new group, on connections of its own."""
    name = f"group-{next(_numbers)}"
    wait_for_coordinator(bench.broker.port, name)
    sockets = bench.connect(bench.options.scaled(CONNECTIONS, least=2))
    return bench.keep.enter_context(ConsumerGroup(name, subscription, sockets))


@scenario(
    "consumer-heartbeat",
    f"a stable group of {MEMBERS:,} members (KIP-848): replayed heartbeats on {CONNECTIONS} connections, "
    "one in flight on each",
    settings=LONG_SESSIONS,
)
def consumer_heartbeat(bench: Bench) -> Round:
    topics = {f"t{number}": bench.options.scaled(PARTITIONS_OF_TOPIC) for number in range(TOPICS)}
    bench.create(topics)
    group = _group(bench, Subscription(sum(topics.values()), [*topics]))
    bench.figures["join_s"] = group.join(bench.options.scaled(MEMBERS))
    requests = numbered(map(encode, group.steady_requests()))
    check = check_consumer_heartbeat(group.members[0].member_id)
    bench.warm(requests, check)

    def measure() -> Figures:
        connections = bench.options.scaled(CONNECTIONS, least=2)
        played = bench.replay(requests, check, connections=connections, depth=1)
        return work(played.usage, requests=played.requests) | latencies(played.latencies_ns)

    return measure


@scenario(
    "consumer-leave",
    f"{LEAVING_MEMBERS} of {SETTLING_MEMBERS} members (KIP-848) leave at once: until the others have their "
    f"{SETTLING_PARTITIONS} partitions, with heartbeats every {INTERVAL_MS} ms; median of {SETTLINGS_IN_A_ROUND}",
    settings=LONG_SESSIONS | SHORT_INTERVAL,
)
def consumer_leave(bench: Bench) -> Round:
    partitions = bench.options.scaled(SETTLING_PARTITIONS)
    bench.create({"t": partitions})
    group = _group(bench, Subscription(partitions, ["t"]))
    bench.figures["join_s"] = group.join(bench.options.scaled(SETTLING_MEMBERS, least=2))
    options = bench.options
    requests = numbered(map(encode, group.steady_requests()))
    bench.warm(requests, check_consumer_heartbeat(group.members[0].member_id))
    leaving = options.scaled(LEAVING_MEMBERS)
    for _ in range(options.scaled(SETTLINGS_TO_WARM)):
        group.leave(leaving)
        group.join(leaving)

    def measure() -> Figures:
        times_s, cpu_s, heartbeats = [], 0.0, 0
        for _ in range(options.scaled(SETTLINGS_IN_A_ROUND)):
            # They come to their rhythm, and the last assignment to its age.
            group.run(lambda: False, min(QUIET_S, options.run_s))
            start, sent = bench.meter.read(), group.heartbeats
            times_s.append(group.leave(leaving))
            cpu_s += bench.meter.since(start).cpu_s
            heartbeats += group.heartbeats - sent
            group.join(leaving)
        return {
            "settle_s": statistics.median(times_s),
            "settle_cpu_ms": cpu_s * 1e3 / len(times_s),
            "heartbeats": heartbeats / len(times_s),
        }

    return measure


@scenario(
    "growth-consumer-members",
    f"{MEMBERS_WITH_MEMORY[0]:,} and {MEMBERS_WITH_MEMORY[1]:,} members (KIP-848) of a group that subscribes to "
    f"{MANY_TOPICS:,} topics by a regular expression: memory",
    alone=True,
    settings=LONG_SESSIONS,
)
def growth_consumer_members(bench: Bench) -> Round:
    topics = {f"t{number}": 1 for number in range(bench.options.scaled(MANY_TOPICS))}
    bench.create(topics)

    def measure() -> Figures:
        figures: Figures = {}
        group = _group(bench, Subscription(len(topics), regex="t.*"))
        group.join(bench.options.scaled(10))  # whatever is loaded for the first ones
        before_mib, before = _memory_mib(bench), len(group.members)
        for step in MEMBERS_WITH_MEMORY:
            start, new = bench.meter.read(), bench.options.scaled(step) - len(group.members)
            figures[f"join_s@{step}"] = group.join(new)
            figures[f"cpu_ms_per_member@{step}"] = bench.meter.since(start).cpu_s * 1e3 / new
            grown_mib = _memory_mib(bench) - before_mib
            figures[f"kib_per_member@{step}"] = grown_mib * 1024 / (len(group.members) - before)
        return figures

    return measure


def _memory_mib(bench: Bench) -> float:
    """Returns the resident memory; of Apache Kafka the live heap, since it does not give back what it once used."""
    if bench.spec.kind == "kafka":
        return kafka_java.live_heap_mib(bench.broker.pid)
    return machine.resident_mib(bench.broker.pid)
