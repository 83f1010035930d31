"""Starting, stopping, and doing nothing."""

from __future__ import annotations

import time

from benchmarks import machine
from benchmarks.bench import Bench, Figures, Round, scenario
from benchmarks.scenarios.raw import PARTITIONS, fill

IDLE_PARTITIONS, PER_TOPIC = 1000, 10
RESTART_PARTITIONS = 500


def idle(bench: Bench, seconds: float, *, settle_s: float) -> Figures:
    """CPU and wake-ups of a broker without requests."""
    time.sleep(settle_s)
    start, before = bench.meter.read(), machine.wake_ups(*bench.meter.pids)
    time.sleep(seconds)
    usage, after = bench.meter.since(start), machine.wake_ups(*bench.meter.pids)
    woken = sum(count - before.get(thread, 0) for thread, count in after.items())
    return {
        "idle_core": usage.cpu_s / usage.seconds,
        "wake_ups_per_s": woken / usage.seconds,
        "others_core": usage.others_s / usage.seconds,
    }


@scenario("startup", "exec to the first acknowledged record on an empty folder; idle memory; a clean stop", alone=True)
def startup(bench: Bench) -> Round:
    def measure() -> Figures:
        time.sleep(bench.options.settle_s)
        memory = machine.resident_mib(bench.broker.pid), machine.resident_mib(bench.broker.pid, peak=True)
        bench.broker.stop()
        return {"stop_s": bench.broker.stop_s, "resident_mib": memory[0], "peak_mib": memory[1]}

    return measure


@scenario(
    "restart",
    f"a clean stop, and a start on {RESTART_PARTITIONS} partitions, {PARTITIONS} of which hold what --fill-mib says",
    alone=True,
)
def restart(bench: Bench) -> Round:
    fill(bench)
    bench.create({"many": bench.options.scaled(RESTART_PARTITIONS - PARTITIONS)})

    def measure() -> Figures:
        bench.broker.stop()
        again = bench.lab.start(bench.spec, bench.broker.root)
        peak_mib = machine.resident_mib(again.pid, peak=True)
        again.stop()
        return {
            "stop_s": bench.broker.stop_s,
            "restart_s": again.startup_s,
            "restart_cpu_s": again.startup_cpu_s,
            "peak_mib": peak_mib,
        }

    return measure


@scenario("idle", f"nobody asks anything; {IDLE_PARTITIONS:,} partitions in topics of {PER_TOPIC}", alone=True)
def idle_with_partitions(bench: Bench) -> Round:
    began = time.monotonic()
    topics = bench.options.scaled(IDLE_PARTITIONS // PER_TOPIC)
    bench.create({f"idle-{number}": PER_TOPIC for number in range(topics)})
    bench.figures["create_s"] = time.monotonic() - began
    return lambda: idle(bench, bench.options.idle_s, settle_s=bench.options.settle_s)
