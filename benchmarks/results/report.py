"""Results as Markdown: a table for each scenario, the bare limits, and how the brokers stand to what was aimed at.

A broker's figure is the median of its rounds. A ratio is taken pair by pair, between rounds that stood next to each
other, and then summed up: median (lowest to highest).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.results import metrics
from benchmarks.results.goals import GOALS, Goal
from benchmarks.results.stored import Results

_COOLED_BY = 0.15  # the broker was not warm if its cost fell by more from the first round to the last
_LIMIT_COLUMNS = ("mib_per_s", "requests_per_s", "cpu_s_per_gib", "cpu_s_per_mrequest", "others_core")
_LIMIT_WORK = {"sink-small": "cpu_s_per_mrequest"}  # of the others it is CPU per GiB


def render(results: Results, only: Sequence[str] = ()) -> str:
    about = [f"Taken {results.taken}, kwire {results.kwire}."]
    about += [f"* {name}: {value}" for name, value in results.machine.items()]
    about += [f"* {name}: `{command}`" for name, command in results.brokers.items()]
    parts = [[about[0], "", *about[1:]]]
    parts += [
        [f"## {scenario}", "", results.about[scenario], "", *_scenario(results, scenario)]
        for scenario in dict.fromkeys(entry.scenario for entry in results.entries)
        if not only or scenario in only
    ]
    if results.limits:
        parts.append(["## Bare limits", "", *_limits(results)])
    goals = _goals(results)
    if len(goals) > 1 and not only:
        parts.append(["## What was aimed at", "", *_aligned(goals)])
    return "\n\n".join("\n".join(part) for part in parts)


def ratios(results: Results, scenario: str, metric: str, broker: str) -> list[float]:
    """A broker over the baseline, for each pair of rounds."""
    base = results.rounds(scenario, next(iter(results.brokers)))
    other = results.rounds(scenario, broker)
    pairs = [(base[n].get(metric, 0.0), other[n].get(metric)) for n in base if n in other]
    return [value / first for first, value in pairs if first and value is not None]


def _scenario(results: Results, scenario: str) -> list[str]:
    baseline, *others = results.brokers
    rounds = {broker: list(results.rounds(scenario, broker).values()) for broker in results.brokers}
    rows = [["", *results.brokers, *(f"{broker} / {baseline}" for broker in others), "better"]]
    names = {name for found in rounds.values() for figures in found for name in figures}
    for name in metrics.in_order(names):
        better = metrics.of(name).better
        row = [metrics.label(name), *(_median(found, name) for found in rounds.values())]
        row += [_summed_up(ratios(results, scenario, name, broker)) if better else "" for broker in others]
        rows.append([*row, better])
    rows += _share_of_limit(results, scenario, rounds, len(others))
    lines = [
        *_aligned(rows),
        "",
        "Rounds: " + ", ".join(f"{name} {len(found)}" for name, found in rounds.items()) + ".",
    ]
    for broker in results.brokers:
        lines += _not_warm(broker, list(results.rounds(scenario, broker).values()))
    for entry in results.entries:
        if entry.scenario == scenario and entry.error:
            lines.append(f"Failed: {entry.broker}, round {entry.number}: {entry.error.splitlines()[0]}")
    return lines


def _not_warm(broker: str, rounds: Sequence[dict[str, float]]) -> list[str]:
    for name in metrics.WORK:
        costs = [figures[name] for figures in rounds if name in figures]
        if len(costs) > 2 and costs[0]:
            fall = 1 - costs[-1] / costs[0]
            what = f"{metrics.METRICS[name].label} fell by {fall:.0%} from the first round to the last"
            return [f"{broker} was not warm: {what}."] if fall > _COOLED_BY else []
    return []


def _share_of_limit(
    results: Results, scenario: str, rounds: dict[str, list[dict[str, float]]], others: int
) -> list[list[str]]:
    limit = results.limit_of.get(scenario, "")
    name = _LIMIT_WORK.get(limit, "cpu_s_per_gib")
    bare = [entry.figures[name] for entry in results.limits if entry.scenario == limit]
    if not bare:
        return []
    row = [f"the bare limit's CPU over the broker's ({limit}), %"]
    for found in rounds.values():
        costs = [figures[name] for figures in found if figures.get(name)]
        row.append(_number(100 * statistics.median(bare) / statistics.median(costs)) if costs else "")
    return [[*row, *[""] * others, "higher"]]


def _limits(results: Results) -> list[str]:
    rows = [["", *(metrics.label(name) for name in _LIMIT_COLUMNS)]]
    for limit in dict.fromkeys(entry.scenario for entry in results.limits):
        found = [entry.figures for entry in results.limits if entry.scenario == limit]
        rows.append([limit, *(_median(found, name) for name in _LIMIT_COLUMNS)])
    return _aligned(rows)


def _goals(results: Results) -> list[list[str]]:
    """Returns a row for each goal and each broker but the baseline: both figures, aimed at, found, reached or not."""
    baseline = next(iter(results.brokers))
    rows = [["scenario", "figure", "broker", "its figure", baseline, "aimed at", "found", "reached"]]
    fixed = [name for name in dict.fromkeys(entry.scenario for entry in results.entries) if "growth" not in name]
    for goal in GOALS:
        for scenario in fixed if goal.scenario == "*" else [goal.scenario]:
            for broker in list(results.brokers)[1:] or list(results.brokers):
                found = _found(results, goal, scenario, broker)
                if found:
                    reached = "yes" if goal.is_reached_by(statistics.median(found)) else "**no**"
                    both = [
                        _median(list(results.rounds(scenario, it).values()), goal.metric) for it in (broker, baseline)
                    ]
                    rows.append(
                        [scenario, metrics.label(goal.metric), broker, *both, str(goal), _summed_up(found), reached]
                    )
    return rows


def _found(results: Results, goal: Goal, scenario: str, broker: str) -> list[float]:
    if goal.is_ratio:
        return ratios(results, scenario, goal.metric, broker) if len(results.brokers) > 1 else []
    rounds = results.rounds(scenario, broker).values()
    return [figures[goal.metric] for figures in rounds if goal.metric in figures]


def _median(rounds: Sequence[dict[str, float]], name: str) -> str:
    values = [figures[name] for figures in rounds if name in figures]
    if not values:
        return ""
    return _number(statistics.median(values) * (100 if metrics.of(name).is_share else 1))


def _summed_up(values: Sequence[float]) -> str:
    if not values:
        return ""
    return f"{_number(statistics.median(values))} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    rule = "|".join(
        ("-" * (width + 2)) if place == 0 else "-" * (width + 1) + ":" for place, width in enumerate(widths)
    )
    return [lines[0], f"|{rule}|", *lines[1:]]
