"""A broker's metrics as Prometheus gets them: over HTTP, parsed by prometheus_client."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from kwire.testing import Broker
from testkit.basics.waiting import eventually

GROUP = "kafka_server_group_coordinator_metrics_"
CLASSIC = "kafka_coordinator_group_groupmetadatamanager_"
SHARE = "kafka_server_share_coordinator_metrics_"

Values = dict[str, float]
"""`name`, or `name{label="value"}` -> the value."""


def text_at(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.status == 200
        text: str = answer.read().decode()
    return text


def parsed(text: str) -> Values:
    values: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            line = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert line not in values
            values[line] = sample.value
    return values


def scrape(broker: Broker) -> Values:
    return parsed(text_at(broker.metrics_url))


def eventually_has(broker: Broker, expected: Values) -> None:
    """Answers may be a moment old."""
    missing: Values = {}

    def has() -> bool:
        found = scrape(broker)
        missing.clear()
        missing.update((line, found[line]) for line, value in expected.items() if found[line] != value)
        return not missing

    try:
        eventually(has, "the metrics are as expected")
    except AssertionError:
        raise AssertionError(f"expected {expected}, but it is {missing}") from None


def groups(protocol: str) -> str:
    return f'{GROUP}group_count{{protocol="{protocol}"}}'


def in_state(kind: str, state: str) -> str:
    """The number of groups of a kind other than classic."""
    return f'{GROUP}{kind}_group_count{{state="{state}"}}'
