"""The length and size of a run."""

from __future__ import annotations

import attrs


@attrs.frozen
class Options:
    """Options of the scenarios, with times in seconds. A scenario's description names those that it uses."""

    run_s: float = 6.0  # the measured part of a round
    warm_cpu_s: float = 60.0  # what a broker works on a load, in CPU time, before anything is measured
    warm_s: float = 120.0  # the longest warm-up by the clock
    idle_s: float = 10.0
    settle_s: float = 5.0  # before idling is measured
    fill_mib: int = 1024  # what the scenarios that read have to read
    stored_mib: int = 10_240  # what those that start on much data find
    table_records: int = 10_000_000  # of the topic that the pipeline's scenarios read
    growth_to: int = 10_000  # the last step of connections and partitions; members go to a tenth of it
    scale: float = 1.0  # of every number of connections, partitions, records and repetitions
    report_ms: int = 500  # how often Java's tools report their progress

    def scaled(self, count: int, least: int = 1) -> int:
        return max(int(count * self.scale), least)


STANDARD = Options()
# A look at a change of one's own. Apache Kafka is far from warm by then.
QUICK = Options(
    run_s=2.0,
    warm_cpu_s=5.0,
    warm_s=10.0,
    idle_s=3.0,
    settle_s=1.0,
    fill_mib=256,
    stored_mib=512,
    table_records=1_000_000,
    growth_to=1000,
)
# Whether everything works at all.
SMOKE = Options(
    run_s=0.2,
    warm_cpu_s=0.05,
    warm_s=0.2,
    idle_s=0.2,
    settle_s=0.0,
    fill_mib=12,
    stored_mib=12,
    table_records=1000,
    growth_to=100,
    scale=0.02,
    report_ms=50,
)
