"""Byte equality with Kafka's own classes: every request, response and record, every version, both directions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kwire_protocol.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    response_head,
    write_request_header,
)
from kwire_protocol.messages import APIS
from kwire_protocol.wire import Reader, Writer

from devtools.suite.tiers import examples
from testkit.messages.catalogue import Entry, messages, naming
from testkit.messages.messages_judge import Judge, running_judge
from testkit.messages.values import difference, least, most, values

pytestmark = pytest.mark.more

EXAMPLES_PER_VERSION = examples(1)
OF_VOTERS = {52, 53, 54, 70, 80, 81, 82, 94}
"""Vote, BeginQuorumEpoch, EndQuorumEpoch, ControllerRegistration, three of RaftVoter, UnregisterController."""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with running_judge() as running:
        yield running


def check(judge: Judge, entry: Entry, version: int, value: Any) -> None:
    w = Writer()
    value.write(w, version)
    judge.check(entry, version, value, w.getvalue())
    read = entry.cls.read(Reader(w.getvalue()), version)
    assert read == value, difference(read, value)


@messages()
def test_defaults_extremes_and_nulls_are_kafkas_bytes(judge: Judge, entry: Entry) -> None:
    for version in entry.message.versions:
        with naming(entry, version):
            check(judge, entry, version, entry.cls())
            check(judge, entry, version, least(entry, version))
            check(judge, entry, version, least(entry, version, elements=2))
            check(judge, entry, version, most(entry, version))


@messages()
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
        with naming(entry, version):
            check(judge, entry, version, value)

    any_value()


def test_the_table_of_apis_is_kafkas(judge: Judge) -> None:
    apis = {api.key: api for api in judge.apis()}
    assert set(apis) == set(APIS) | OF_VOTERS
    for key, ours in APIS.items():
        kafkas = apis[key]
        assert list(ours.versions) == sorted(kafkas.header_versions)
        assert ("broker" in ours.listeners) == kafkas.for_clients
        assert ours.request_class.api_key == ours.response_class.api_key == key
        for version, header_versions in kafkas.header_versions.items():
            flexible = ours.is_flexible(version)
            response = flexible and ours.name != "ApiVersions"
            assert header_versions == (2 if flexible else 1, 1 if response else 0)


@pytest.mark.parametrize("client_id", [None, "", "console-producer", "é" * 1000])
@pytest.mark.parametrize(("api_key", "api_version", "header_version"), [(0, 8, 1), (0, 9, 2), (18, 3, 2), (17, 1, 1)])
def test_request_headers_are_kafkas_bytes(
    judge: Judge, api_key: int, api_version: int, header_version: int, client_id: str | None
) -> None:
    header = RequestHeader(api_key, api_version, -5, client_id)
    w = Writer()
    write_request_header(w, header)
    fields = {"requestApiKey": api_key, "requestApiVersion": api_version, "correlationId": -5, "clientId": client_id}
    name = "org.apache.kafka.common.message.RequestHeaderData"
    judge.check_json(name, header_version, fields, w.getvalue())
    assert read_request_header(Reader(w.getvalue())) == header


@pytest.mark.parametrize(("api_key", "api_version", "header_version"), [(0, 8, 0), (0, 9, 1), (18, 4, 0), (17, 1, 0)])
def test_response_headers_are_kafkas_bytes(judge: Judge, api_key: int, api_version: int, header_version: int) -> None:
    size, header = (head := response_head(api_key, api_version, 77))[:4], head[4:]
    assert size == bytes(4)
    name = "org.apache.kafka.common.message.ResponseHeaderData"
    judge.check_json(name, header_version, {"correlationId": 77}, header)
    assert read_response_header(Reader(header), api_key, api_version) == 77
