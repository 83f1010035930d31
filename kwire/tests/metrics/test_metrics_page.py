"""The metrics as a whole: their names, and docs/metrics.md, which must match the code."""

from __future__ import annotations

import re

from devtools.places import REPOSITORY
from kwire.groups.classic.group import GroupState as ClassicState
from kwire.groups.consumer.group import GroupState as ConsumerState
from kwire.groups.group import GroupType
from kwire.groups.share.group import GroupState as ShareState
from kwire.metrics.groups import STATES
from kwire.metrics.metric import MetricType
from kwire.metrics.reading import METRICS
from kwire.testing import Broker
from testkit.raw.scrapes import text_at

_ROW = re.compile(r"^\| `(k\w+)(?:\{(.*)\})?` \| (\w+) \| (.*) \| (.*) \|$", re.MULTILINE)


def rows() -> list[str]:
    """Returns the table of docs/metrics.md as it should be."""
    lines = []
    for it in METRICS:
        labels = f"{{{', '.join(it.labels)}}}" if it.labels else ""
        kafka = f"`{it.kafka}`" if it.kafka else ""
        lines.append(f"| `{it.name}{labels}` | {it.type.name.lower()} | {kafka} | {it.help} |")
    return lines


def test_the_page_lists_every_metric_with_kafkas_name() -> None:
    page = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    found = [match[0] for match in _ROW.finditer(page)]
    assert found == rows(), "\n".join(["the tables should be", *rows()])


def test_names_follow_prometheus_rules() -> None:
    names = [it.name for it in METRICS]
    assert len(set(names)) == len(names)
    for it in METRICS:
        assert re.fullmatch(r"(kafka|kwire)_[a-z0-9_]+", it.name)
        assert it.name.startswith("kafka_") == bool(it.kafka)
        assert it.name.endswith("_total") == (it.type is MetricType.COUNTER)
        assert it.name.endswith("_seconds") == (it.type is MetricType.SUMMARY)
        assert it.help.endswith(".")


def test_a_broker_has_every_metric_in_the_order_of_the_page() -> None:
    with Broker(metrics=True) as broker:
        text = text_at(broker.metrics_url)
        assert re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE) == [it.name for it in METRICS]
        some = text_at(f"{broker.metrics_url}?name[]={METRICS[0].name}")
        assert re.findall(r"^# TYPE (\w+) ", some, re.MULTILINE) == [METRICS[0].name]


def test_every_state_of_every_kind_of_group_has_a_metric() -> None:
    enums = {GroupType.CLASSIC: ClassicState, GroupType.CONSUMER: ConsumerState, GroupType.SHARE: ShareState}
    for kind, states in enums.items():
        assert {state.value for state in states} <= set(STATES[kind.value])
    assert {kind.value for kind in GroupType} <= set(STATES)
