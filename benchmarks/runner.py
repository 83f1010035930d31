"""Runs scenarios, broker against broker, and saves the results.

The brokers of a scenario are started one after the other, prepared and warmed up. Then they are measured in turn:
A B, B A, A B, ... What drifts over time, or lingers from the one before, so falls on each alike. A broker
that is not being measured stays up, idle.

A failure is saved and costs one round of one broker; the rest of a long run continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from benchmarks import limits, machine
from benchmarks.bench import Bench, Figures, Round, Scenario
from benchmarks.brokers.clusters import running_cluster
from benchmarks.brokers.single import Lab, Spec
from benchmarks.options import Options
from benchmarks.results.stored import Entry, Results

Player = tuple[Bench, Round]


@attrs.define(eq=False)
class Runner:
    lab: Lab
    specs: Sequence[Spec]
    options: Options
    results: Results
    with_limits: bool
    file: Path | None  # written after every step
    report: Callable[[str], None]

    def play(self, scenario: Scenario, numbers: range) -> None:
        """Rounds of one scenario, by number; all of them with the same start of the brokers, unless it is `alone`."""
        self.results.about[scenario.name] = scenario.about
        if scenario.limit:
            self.results.limit_of[scenario.name] = scenario.limit
        with ExitStack() as running:
            players: dict[str, Player] = {}
            if not scenario.alone:
                for spec in self.specs:
                    with self._written_down(scenario, numbers[0], spec.name, "prepared") as figures:
                        players[spec.name] = self._prepare(scenario, spec, running, figures)
            for number in numbers:
                self._measure_limit(scenario, number)
                for spec in self.specs if number % 2 == 0 else reversed(self.specs):
                    if scenario.alone or spec.name in players:
                        with self._written_down(scenario, number, spec.name, "measured") as figures:
                            self._measure(scenario, spec, players.get(spec.name), figures)

    def _prepare(self, scenario: Scenario, spec: Spec, running: ExitStack, figures: Figures) -> Player:
        cluster = None
        if scenario.nodes is None:
            with_settings = spec.with_defaults(scenario.settings)
            broker = running.enter_context(self.lab.broker(with_settings, scenario.more_listeners))
            figures |= {"startup_s": broker.startup_s, "startup_cpu_s": broker.startup_cpu_s}
        else:
            cluster = running.enter_context(running_cluster(self.lab, spec, scenario.nodes))
            broker = cluster.nodes[1]
            figures |= {"nodes_startup_s": cluster.startup_s, "nodes_startup_cpu_s": cluster.startup_cpu_s}
        keep = running.enter_context(ExitStack())
        bench = Bench(self.lab, spec, broker, self.options, keep, cluster)
        measure = scenario.prepare(bench)
        figures |= bench.figures
        return bench, measure

    def _measure(self, scenario: Scenario, spec: Spec, player: Player | None, figures: Figures) -> None:
        with ExitStack() as once:
            bench, measure = player or self._prepare(scenario, spec, once, figures)
            figures |= measure()
            if bench.nodes is not None and bench.nodes.running:
                figures["nodes_peak_mib"] = machine.resident_mib(*bench.meter.pids, peak=True)
            elif bench.nodes is None and bench.broker.running:
                figures["peak_mib"] = machine.resident_mib(bench.broker.pid, peak=True)
                figures["resident_mib"] = machine.resident_mib(bench.broker.pid)

    def _measure_limit(self, scenario: Scenario, number: int) -> None:
        if not self.with_limits or scenario.limit is None:
            return
        figures = limits.measure(scenario.limit, self.lab, run_s=self.options.run_s)
        self.results.limits.append(Entry(scenario.limit, number, "", figures))

    @contextmanager
    def _written_down(self, scenario: Scenario, number: int, broker: str, what: str) -> Iterator[Figures]:
        entry = self._entry(scenario.name, number, broker)
        began = time.monotonic()
        try:
            yield entry.figures
        except Exception as problem:
            entry.error = f"{type(problem).__name__}: {problem}"
        entry.took_s += time.monotonic() - began
        if self.file is not None:
            self.results.save(self.file)
        outcome = f"failed: {entry.error}" if entry.error else what
        self.report(f"{scenario.name:22} round {number} {broker:12} {time.monotonic() - began:6.1f} s  {outcome}")

    def _entry(self, scenario: str, number: int, broker: str) -> Entry:
        """Returns the entry of a round, which the preparation shares with the first round."""
        entries = self.results.entries
        for entry in entries:
            if (entry.scenario, entry.number, entry.broker) == (scenario, number, broker):
                return entry
        entries.append(Entry(scenario, number, broker))
        return entries[-1]
