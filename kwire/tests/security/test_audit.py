"""The audit log: its decisions, and the form of their lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest
import trio
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.metadata import MetadataRequest

from kwire.cli.log_lines import LineFormatter
from kwire.security.audit import Audited, AuditLog
from kwire.security.authorizer import Operation, ResourceType
from kwire.security.principal import Principal, Requester
from testkit.scenes.server_in_trio import ServerInTrio, with_server

ALICE = Requester(Principal("User", "alice"), "10.0.0.7")
STANDARD = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def written(audited: Audited, *, as_json: bool = False) -> tuple[AuditLog, list[str]]:
    lines: list[str] = []
    return AuditLog(audited, as_json, lambda: 1_700_000_000_123, lambda _, line: lines.append(line)), lines


def decide(audit: AuditLog, name: str = "orders", *, allowed: bool, requester: Requester = ALICE) -> None:
    audit.decided(requester, Operation.WRITE, ResourceType.TOPIC, name, api="Produce", allowed=allowed)


@pytest.mark.parametrize(("audited", "count"), [(Audited.NOTHING, 0), (Audited.DENIED, 2), (Audited.EVERYTHING, 4)])
def test_what_is_configured_is_written(audited: Audited, count: int) -> None:
    audit, lines = written(audited)
    for allowed in (False, True):
        decide(audit, allowed=allowed)
        principal = ALICE.principal if allowed else None
        audit.authenticated("10.0.0.7", mechanism="PLAIN", listener="SASL", principal=principal, reason="why")
    assert len(lines) == count


def test_a_decision_is_a_sentence() -> None:
    audit, lines = written(Audited.EVERYTHING)
    decide(audit, allowed=False)
    decide(audit, "a'\n" + "x" * 1000, allowed=True, requester=Requester(Principal("User", "a\nb"), "::1"))
    audit.decided(ALICE, Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster", api="CreateTopics", allowed=True)
    audit.authenticated("::1", mechanism="PLAIN", listener="SASL", principal=ALICE.principal, reason="")
    audit.authenticated("::1", mechanism="PLAIN", listener="SASL", principal=None, reason="a wrong password")
    assert lines[0] == "denied: User:alice from 10.0.0.7 may not WRITE on topic 'orders' (Produce)"
    assert lines[2] == "allowed: User:alice from 10.0.0.7 may CREATE on cluster (CreateTopics)"
    assert lines[3] == "allowed: User:alice from ::1 has logged in with PLAIN at SASL"
    assert lines[4] == "denied: a login from ::1 with PLAIN at SASL: a wrong password"
    assert all(line.isprintable() and len(line) < 600 for line in lines)


def test_a_decision_is_a_json_object() -> None:
    audit, lines = written(Audited.EVERYTHING, as_json=True)
    decide(audit, "x" * 1000, allowed=False)
    audit.authenticated("::1", mechanism="PLAIN", listener="SASL", principal=ALICE.principal, reason="")
    assert json.loads(lines[0]) == {
        "time": "2023-11-14T22:13:20.123Z",
        "event": "authorization",
        "allowed": False,
        "host": "10.0.0.7",
        "principal": "User:alice",
        "operation": "WRITE",
        "resource_type": "TOPIC",
        "resource_name": "x" * 300,
        "api": "Produce",
    }
    assert json.loads(lines[1])["event"] == "authentication"


def test_a_line_of_json_is_not_cut_by_the_format_of_the_log() -> None:
    audit, lines = written(Audited.DENIED, as_json=True)
    decide(audit, "ü" * 300, allowed=False)
    record = logging.LogRecord("kwire.audit", logging.INFO, "", 0, "%s", (lines[0],), None)
    assert json.loads(LineFormatter().format(record))["resource_name"] == "ü" * 300
    other = logging.LogRecord("kwire.x", logging.INFO, "", 0, "%s", (lines[0],), None)
    assert len(LineFormatter().format(other)) == 600


def audited(scenario: Callable[[ServerInTrio], object], caplog: pytest.LogCaptureFixture, *more: str) -> list[str]:
    caplog.set_level(logging.INFO)
    with_server(scenario, settings=[STANDARD, *more])  # type: ignore[arg-type]
    return [it.getMessage() for it in caplog.records if it.name == "kwire.audit"]


async def request_topic(kwire: ServerInTrio, times: int = 1) -> None:
    client = await kwire.connect()
    for _ in range(times):
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("secret", [ListOffsetsPartition(0)])])
        await client.call(request, 6)
    await client.call(MetadataRequest(None), 9)


def test_what_a_request_names_is_audited_and_what_a_list_leaves_out_is_not(caplog: pytest.LogCaptureFixture) -> None:
    lines = audited(request_topic, caplog)
    assert lines == ["denied: User:ANONYMOUS from 127.0.0.1 may not DESCRIBE on topic 'secret' (ListOffsets)"]


def test_all_decisions_are_audited_if_configured_also_those_that_are_remembered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await request_topic(kwire, 3)

    lines = audited(scenario, caplog, "kwire.audit.log=all", "super.users=User:ANONYMOUS")
    assert lines == ["allowed: User:ANONYMOUS from 127.0.0.1 may DESCRIBE on topic 'secret' (ListOffsets)"] * 3


def test_too_many_lines_are_only_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await request_topic(kwire, 10)
        await trio.sleep(2)

    lines = audited(scenario, caplog, "kwire.audit.log.max.lines.per.second=4")
    assert len(lines) == 5
    assert lines[-1] == "left out 6 more lines of the audit log"


def test_nothing_is_audited_if_that_is_configured(caplog: pytest.LogCaptureFixture) -> None:
    assert audited(request_topic, caplog, "kwire.audit.log=none") == []
