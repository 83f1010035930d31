"""The tables of a report, made from figures."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from benchmarks.brokers.single import Spec
from benchmarks.machine import parse_cores
from benchmarks.options import STANDARD
from benchmarks.results.report import ratios, render
from benchmarks.results.stored import Entry, Results


def found(**series: list[float]) -> Results:
    """Rounds of raw-produce, where each broker has one figure."""
    results = Results.new({name: name for name in series}, STANDARD)
    results.about["raw-produce"] = "about it"
    results.limit_of["raw-produce"] = "sink-large"
    for name, costs in series.items():
        results.entries += [
            Entry("raw-produce", n, name, {"cpu_s_per_gib": cost, "peak_mib": 50}) for n, cost in enumerate(costs)
        ]
    return results


def row(report: str, label: str) -> list[str]:
    (line,) = [line for line in report.splitlines() if line.startswith(f"| {label}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_ratios_are_taken_pair_by_pair() -> None:
    results = found(kafka=[1.0, 2.0, 4.0], kwire=[0.5, 2.0, 1.0])
    assert ratios(results, "raw-produce", "cpu_s_per_gib", "kwire") == [0.5, 1.0, 0.25]
    assert row(render(results), "broker CPU per GiB, s")[1:] == ["2", "1", "0.5 (0.25 to 1)", "lower"]


def test_a_failed_round_is_named_and_left_out() -> None:
    results = found(kafka=[1.0, 2.0], kwire=[0.5, 9.0])
    results.entries[-1].error = "BadAnswer: Produce: error codes [3]\nand more"
    report = render(results)
    assert row(report, "broker CPU per GiB, s")[2] == "0.5"
    assert "Rounds: kafka 2, kwire 1." in report
    assert "Failed: kwire, round 1: BadAnswer: Produce: error codes [3]" in report


def test_a_cost_that_falls_from_round_to_round_is_pointed_out() -> None:
    report = render(found(kafka=[2.0, 1.8, 1.5], kwire=[1.0, 1.1, 0.9]))
    assert "kafka was not warm: broker CPU per GiB fell by 25%" in report
    assert "kwire was not warm" not in report


def test_the_bare_limit_is_given_as_a_share() -> None:
    results = found(kafka=[2.0], kwire=[1.0])
    results.limits.append(Entry("sink-large", 0, "", {"cpu_s_per_gib": 0.7, "mib_per_s": 1000.0}))
    assert row(render(results), "the bare limit's CPU")[1:3] == ["35", "70"]


def test_goals_are_judged_by_the_median_ratio() -> None:
    reached = render(found(kafka=[1.0, 1.0, 1.0], kwire=[0.5, 0.9, 0.6]))
    missed = render(found(kafka=[1.0, 1.0, 1.0], kwire=[0.5, 0.9, 0.7]))
    assert row(reached, "raw-produce | broker CPU")[-1] == "yes"
    assert row(missed, "raw-produce | broker CPU")[-1] == "**no**"


def test_steps_of_a_series_stand_in_order() -> None:
    results = Results.new({"kwire": "kwire"}, STANDARD)
    results.about["growth-members"] = "about it"
    figures = {"join_s@1000": 3.0, "join_s@10": 1.0, "join_s@100": 2.0}
    results.entries.append(Entry("growth-members", 0, "kwire", figures))
    steps = [line.split("|")[1].strip() for line in render(results).splitlines() if "assigned" in line]
    assert [step.rpartition(" ")[2] for step in steps] == ["10", "100", "1,000"]


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    results = found(kafka=[1.0], kwire=[0.5])
    results.limits.append(Entry("sink-large", 0, "", {"cpu_s_per_gib": 0.7}))
    results.save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json") == results


@pytest.mark.parametrize(
    ("text", "name", "kind", "settings"),
    [
        ("kafka", "kafka", "kafka", {}),
        ("kwire", "kwire", "kwire", {}),
        ("a=kafka:num.io.threads=2,x=y", "a", "kafka", {"num.io.threads": "2", "x": "y"}),
        ("kafka:num.io.threads=2", "kafka", "kafka", {"num.io.threads": "2"}),
        ("b=kwire:num.partitions=3", "b", "kwire", {"num.partitions": "3"}),
        ("c=serve --port={port} {data}", "c", "command", {}),
    ],
)
def test_brokers_are_named_on_the_command_line(text: str, name: str, kind: str, settings: dict[str, str]) -> None:
    spec = Spec.parse(text)
    assert (spec.name, spec.kind) == (name, kind)
    assert kind == "command" or spec.settings == settings


def test_cores_are_numbers_lists_or_ranges() -> None:
    assert [parse_cores(text) for text in ("0", "0,2", "1-3")] == [{0}, {0, 2}, {1, 2, 3}]


def test_a_run_in_parts_is_reported_as_one() -> None:
    whole, rest = found(kafka=[1.0], kwire=[0.5]), found(kwire=[0.7])
    rest.entries = [attrs.evolve(entry, scenario="raw-fetch") for entry in rest.entries]
    rest.about = {"raw-fetch": "about it"}
    whole.add(rest)
    report = render(whole)
    assert "## raw-produce" in report
    assert "## raw-fetch" in report
    assert row(report, "raw-produce | broker CPU")[2:5] == ["kwire", "0.5", "1"]
