"""Byte equality with Kafka's own classes: every request, response and record, every version, both directions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kwire_protocol.wire import Writer

from protocol.tests.message_catalogue import CASES, ENTRIES, IDS, Entry
from protocol.tests.message_values import least, most, values
from protocol.tests.messages_judge import Judge, running_judge

EXAMPLES_PER_VERSION = 3


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with running_judge() as running:
        yield running


def check(judge: Judge, entry: Entry, version: int, value: Any) -> None:
    w = Writer()
    value.write(w, version)
    judge.check(entry, version, value, w.getvalue())


@pytest.mark.parametrize(("entry", "version"), CASES, ids=IDS)
def test_defaults_extremes_and_nulls_are_kafkas_bytes(judge: Judge, entry: Entry, version: int) -> None:
    check(judge, entry, version, entry.cls())
    check(judge, entry, version, least(entry, version))
    check(judge, entry, version, most(entry, version))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_any_value_is_kafkas_bytes(judge: Judge, entry: Entry) -> None:
    versions = list(entry.message.versions)

    @settings(
        max_examples=EXAMPLES_PER_VERSION * len(versions),
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.sampled_from(versions).flatmap(lambda version: st.tuples(st.just(version), values(entry, version))))
    def any_value(case: tuple[int, Any]) -> None:
        version, value = case
        check(judge, entry, version, value)

    any_value()
