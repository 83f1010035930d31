"""`kwire acl` over a cluster that is made up."""

from __future__ import annotations

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kwire_protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kwire_protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kwire_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

from devtools.suite.snapshots import Snapshot
from kwire.client.cluster import Cluster
from kwire.security.acls.acl import Acl
from kwire.security.acls.filters import AclFilter
from testkit.cli.json_page import check_all_keys
from testkit.cli.prompt import ClusterClient
from testkit.fakes.brokers import FakeBrokers


def filter_of(it: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        it.resource_type_filter,
        it.resource_name_filter,
        it.pattern_type_filter,
        it.principal_filter,
        it.host_filter,
        it.operation,
        it.permission_type,
    )


@attrs.define
class AclBrokers:
    acls: list[Acl] = attrs.field(factory=list)
    configs: dict[str, str] = attrs.field(factory=dict)
    refusal: ErrorCode = ErrorCode.NONE

    def create(self, _: int, request: CreateAclsRequest) -> CreateAclsResponse:
        for it in request.creations:
            acl = Acl(
                it.resource_type,
                it.resource_name,
                it.resource_pattern_type,
                it.principal,
                it.host,
                it.operation,
                it.permission_type,
            )
            if not self.refusal and acl not in self.acls:
                self.acls.append(acl)
        return CreateAclsResponse(results=[AclCreationResult(self.refusal, "no") for _ in request.creations])

    def describe(self, _: int, it: DescribeAclsRequest) -> DescribeAclsResponse:
        if self.refusal:
            return DescribeAclsResponse(error_code=self.refusal, error_message="no")
        which = filter_of(it)
        return DescribeAclsResponse(
            resources=[
                DescribeAclsResource(
                    acl.resource_type,
                    acl.resource_name,
                    acl.pattern_type,
                    [AclDescription(acl.principal, acl.host, acl.operation, acl.permission)],
                )
                for acl in self.acls
                if which.matches(acl)
            ]
        )

    def delete(self, _: int, request: DeleteAclsRequest) -> DeleteAclsResponse:
        results = []
        for it in request.filters:
            which = filter_of(it)
            found = [acl for acl in self.acls if which.matches(acl)]
            self.acls = [acl for acl in self.acls if acl not in found]
            deleted = [
                DeleteAclsMatchingAcl(
                    0,
                    None,
                    acl.resource_type,
                    acl.resource_name,
                    acl.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission,
                )
                for acl in found
            ]
            results.append(DeleteAclsFilterResult(0, None, deleted))
        return DeleteAclsResponse(filter_results=results)

    def config(self, _: int, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        [resource] = request.resources
        values = [DescribeConfigsResourceResult(it, self.configs.get(it)) for it in resource.configuration_keys or ()]
        return DescribeConfigsResponse(results=[DescribeConfigsResult(0, None, 4, resource.resource_name, values)])

    def cluster(self) -> Cluster:
        return FakeBrokers(
            answers={
                CreateAclsRequest: self.create,
                DescribeAclsRequest: self.describe,
                DeleteAclsRequest: self.delete,
                DescribeConfigsRequest: self.config,
            }
        ).cluster()


Client = ClusterClient[AclBrokers]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    return Client.of("acl", AclBrokers(), monkeypatch)


def added(client: Client, *arguments: str) -> list[str]:
    return [line.removeprefix("added: ") for line in client("add", *arguments).stdout.splitlines()]


def test_an_acl_is_added_for_each_principal_operation_resource_and_host(client: Client) -> None:
    assert added(client, "--allow", "alice", "--operation", "read", "--topic", "orders") == [
        "ALLOW READ on TOPIC orders (LITERAL) to User:alice from *"
    ]
    several = added(
        client,
        *("--allow", "User:CN=bob,O=x", "--deny", "*", "--operation", "describe-configs", "--operation", "all"),
        *("--topic", "a", "--group", "g", "--cluster", "--prefixed", "--host", "10.0.0.7", "--host", "::1"),
    )
    assert len(several) == len(set(several)) == 2 * 2 * 3 * 2
    assert "DENY ALL on CLUSTER kafka-cluster (LITERAL) to User:* from ::1" in several
    assert "ALLOW DESCRIBE_CONFIGS on GROUP g (PREFIXED) to User:CN=bob,O=x from 10.0.0.7" in several


def test_producer_and_consumer_stand_for_what_those_need(client: Client) -> None:
    assert added(client, "--allow", "a", "--producer", "--topic", "t", "--transactional-id", "x") == [
        "ALLOW WRITE on TOPIC t (LITERAL) to User:a from *",
        "ALLOW DESCRIBE on TOPIC t (LITERAL) to User:a from *",
        "ALLOW CREATE on TOPIC t (LITERAL) to User:a from *",
        "ALLOW WRITE on TRANSACTIONAL_ID x (LITERAL) to User:a from *",
        "ALLOW DESCRIBE on TRANSACTIONAL_ID x (LITERAL) to User:a from *",
    ]
    assert added(client, "--allow", "a", "--consumer", "--topic", "t", "--group", "g") == [
        "ALLOW READ on TOPIC t (LITERAL) to User:a from *",
        "ALLOW DESCRIBE on TOPIC t (LITERAL) to User:a from *",
        "ALLOW READ on GROUP g (LITERAL) to User:a from *",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--operation", "read", "--topic", "t"), "say for whom"),
        (("--allow", "a", "--operation", "read"), "say what for"),
        (("--allow", "a", "--topic", "t"), "say what may be done to topic t"),
        (("--allow", "a", "--consumer", "--topic", "t", "--cluster"), "say what may be done to cluster"),
        (("--allow", "User:", "--operation", "read", "--topic", "t"), "'User:' is not a principal"),
        (("--allow", "a", "--operation", "jump", "--topic", "t"), "'jump' is not one of"),
    ],
)
def test_what_is_missing_or_wrong_is_reported(client: Client, arguments: tuple[str, ...], message: str) -> None:
    assert message in client("add", *arguments, code=2).output
    assert client.brokers.acls == []


def test_lists_of_acls_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    client("list")
    client("add", "--allow", "alice", "--operation", "read", "--topic", "orders", "--topic", "o\x1brders")
    client("add", "--deny", "b", "--operation", "all", "--topic", "ord", "--prefixed", "--host", "10.0.0.7")
    client("list")
    client("list", "--topic", "none", "--principal", "b")
    snapshot("acl-list", client.transcript)


def test_acls_are_listed_with_numbers_and_those_that_concern_a_resource_keep_theirs(client: Client) -> None:
    assert client.json("list") == []
    added(client, "--allow", "a", "--operation", "read", "--topic", "orders", "--topic", "*", "--topic", "other")
    added(client, "--deny", "b", "--operation", "all", "--topic", "ord", "--prefixed", "--group", "g")
    everything = client.json("list")
    check_all_keys("acl list", everything)
    assert [it["number"] for it in everything] == [1, 2, 3, 4, 5]
    concerned = client.json("list", "--topic", "orders")
    assert {it["resource_name"] for it in concerned} == {"orders", "*", "ord"}
    assert all(it in everything for it in concerned)
    assert [it["principal"] for it in client.json("list", "--principal", "b")] == ["User:b"] * 2
    assert client.json("list", "--group", "g") == [
        {
            "number": 5,
            "permission": "DENY",
            "principal": "User:b",
            "host": "*",
            "operation": "ALL",
            "resource_type": "GROUP",
            "resource_name": "g",
            "pattern_type": "PREFIXED",
        }
    ]


def test_acls_are_deleted_after_they_were_shown(client: Client) -> None:
    added(client, "--allow", "a", "--allow", "b", "--operation", "read", "--operation", "write", "--topic", "t")
    refused = client("delete", "--principal", "a", stdin="n\n", code=1)
    assert "delete these 2 ACLs?" in refused.stderr
    assert len(client.brokers.acls) == 4
    deleted = client("delete", "--principal", "a", "--operation", "read", stdin="y\n").stdout
    assert deleted.splitlines()[-1] == "deleted: ALLOW READ on TOPIC t (LITERAL) to User:a from *"
    assert len(client("delete", "--topic", "t", "--yes").stdout.splitlines()) == 3
    assert client("delete", "--topic", "t").stdout == "there is no such ACL\n"
    assert "say which" in client("delete", "--yes", code=2).output


def some_acls(client: Client) -> None:
    client.brokers.configs = {"super.users": "User:root"}
    added(client, "--allow", "alice", "--operation", "read", "--topic", "orders", "--topic", "a", "--host", "10.0.0.7")
    added(client, "--deny", "bob", "--operation", "all", "--topic", "*")


def test_checks_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    some_acls(client)
    client.transcript = ""
    client("check", "alice", "read", "topic", "orders", "--host", "10.0.0.7")
    client("check", "alice", "read", "topic", "orders", code=1)
    client("check", "bob", "describe", "topic", "x", code=1)
    client("check", "root", "create", "cluster")
    client.comment("what has no ACL may be used")
    client.brokers.configs = {"allow.everyone.if.no.acl.found": "true"}
    client("check", "alice", "read", "group", "kitchen")
    snapshot("acl-check", client.transcript)


def test_check_prints_whether_it_is_allowed_and_the_rule(client: Client) -> None:
    some_acls(client)
    rows = client.json("check", "alice", "describe", "topic", "orders", "--host", "10.0.0.7")
    check_all_keys("acl check", rows)
    assert rows == [
        {
            "principal": "User:alice",
            "host": "10.0.0.7",
            "operation": "DESCRIBE",
            "resource_type": "TOPIC",
            "resource_name": "orders",
            "allowed": True,
            "reason": "ACL",
            "rule": 3,
        }
    ]
    (elsewhere,) = client.json("check", "alice", "read", "topic", "orders", code=1)
    assert (elsewhere["host"], elsewhere["allowed"], elsewhere["rule"]) == ("127.0.0.1", False, None)
    (denied,) = client.json("check", "bob", "describe", "topic", "x", code=1)
    assert (denied["allowed"], denied["rule"]) == (False, 1)
    (root,) = client.json("check", "root", "create", "cluster")
    assert (root["resource_name"], root["allowed"], root["reason"]) == ("kafka-cluster", True, "SUPER_USER")
    assert "its name is missing" in client("check", "alice", "read", "topic", code=2).output


def test_check_reads_whether_the_cluster_allows_what_has_no_acl(client: Client) -> None:
    (before,) = client.json("check", "a", "read", "topic", "t", code=1)
    client.brokers.configs = {"allow.everyone.if.no.acl.found": "true"}
    (after,) = client.json("check", "a", "read", "topic", "t")
    assert (before["reason"], after["reason"]) == ("NO_ACL", "NO_ACL")


def test_refusals_are_one_line(client: Client) -> None:
    client.brokers.refusal = ErrorCode.SECURITY_DISABLED
    for arguments in (
        ("add", "--allow", "a", "--operation", "read", "--topic", "t"),
        ("list",),
        ("check", "a", "read", "topic", "t"),
    ):
        [line] = client(*arguments, code=1).stderr.splitlines()
        assert "SECURITY_DISABLED (no)" in line
