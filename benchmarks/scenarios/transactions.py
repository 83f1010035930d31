"""Exactly once, from the producer's side: transactions of 100 records, one after the other."""

from __future__ import annotations

from benchmarks.bench import LEAD_S, Bench, Figures, Round, latencies, scenario, work
from benchmarks.load.requests import value_batch
from benchmarks.load.transactions import Producers
from benchmarks.machine import Usage
from benchmarks.scenarios.raw import PARTITIONS

RECORDS, RECORD_BYTES = 100, 100


@scenario(
    "transactions-1",
    f"a producer commits transactions of {RECORDS} records of {RECORD_BYTES} B, one after the other: "
    "Produce v12 of one batch, EndTxn v5",
)
def transactions_1(bench: Bench) -> Round:
    return _commit(bench, producers=1)


@scenario("transactions-16", "the same of 16 producers at once")
def transactions_16(bench: Bench) -> Round:
    return _commit(bench, producers=16)


def _commit(bench: Bench, *, producers: int) -> Round:
    options = bench.options
    bench.create({"t": PARTITIONS})
    bench.warm_produce("t", PARTITIONS, share=0.3)
    batch = value_batch(RECORDS, RECORD_BYTES, transactional=True)
    load = Producers(bench.broker.port, bench.connect(producers), "t", PARTITIONS, batch)
    bench.keep.callback(load.close)
    start = bench.meter.read()
    warmed = Usage(0.0, 0.0, 0.0)
    while warmed.cpu_s < 0.7 * options.warm_cpu_s and warmed.seconds < 0.7 * options.warm_s:
        load.run(min(1.0, options.run_s))
        warmed = bench.meter.since(start)
    bench.drop_cached()

    def measure() -> Figures:
        committed = load.measure(bench.meter, lead_s=min(LEAD_S, options.run_s), run_s=options.run_s)
        bench.drop_cached()
        figures = work(committed.usage, transactions=committed.transactions)
        if committed.transactions:
            figures["refused_per_transaction"] = committed.refused / committed.transactions
        return figures | latencies(committed.latencies_ns)

    return measure
