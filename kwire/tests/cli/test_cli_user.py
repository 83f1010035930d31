"""`kwire user` over a cluster that is made up, and over a folder before its first start."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kwire_protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kwire_storage.disk.files import RealDisk

from devtools.suite.snapshots import Snapshot
from kwire.client.cluster import Cluster
from kwire.config.server import load_config
from kwire.node.running import close_broker, open_broker
from kwire.runtime.clock import SystemClock
from kwire.security.sasl.scram import SCRAM_MECHANISMS, credential_of_password
from testkit.cli.json_page import check_all_keys
from testkit.cli.prompt import ClusterClient, Prompt
from testkit.fakes.brokers import FakeBrokers

BOTH = sorted(SCRAM_MECHANISMS)


@attrs.define
class UserBrokers:
    """Users by name: iterations by the number of a mechanism."""

    users: dict[str, dict[int, int]] = attrs.field(factory=dict)
    passwords: dict[tuple[str, int], tuple[bytes, bytes]] = attrs.field(factory=dict)
    """Salt and salted password."""
    refusal: ErrorCode = ErrorCode.NONE

    def alter(self, _: int, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
        names = [it.name for it in request.deletions] + [it.name for it in request.upsertions]
        assert len(set(names)) == len(names), "Kafka refuses a user who is in a request twice"
        for deletion in request.deletions:
            del self.users[deletion.name][deletion.mechanism]
        for it in request.upsertions:
            if not self.refusal:
                self.users.setdefault(it.name, {})[it.mechanism] = it.iterations
                self.passwords[it.name, it.mechanism] = it.salt, it.salted_password
        results = [AlterUserScramCredentialsResult(name, self.refusal, "no") for name in names]
        return AlterUserScramCredentialsResponse(results=results)

    def describe(self, _: int, request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
        names = list(self.users) if request.users is None else [it.name for it in request.users]
        results = []
        for name in names:
            infos = [CredentialInfo(*it) for it in self.users.get(name, {}).items()]
            code = ErrorCode.NONE if infos else ErrorCode.RESOURCE_NOT_FOUND
            results.append(DescribeUserScramCredentialsResult(name, code, None, infos))
        return DescribeUserScramCredentialsResponse(results=results)

    def cluster(self) -> Cluster:
        return FakeBrokers(
            answers={AlterUserScramCredentialsRequest: self.alter, DescribeUserScramCredentialsRequest: self.describe}
        ).cluster()


Client = ClusterClient[UserBrokers]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    return Client.of("user", UserBrokers(), monkeypatch)


def test_a_user_gets_a_password_for_both_mechanisms_and_it_is_not_shown(client: Client) -> None:
    result = client("add", "alice", stdin="se cret\n")
    assert result.stdout == "user 'alice' can log in with SCRAM-SHA-256 and SCRAM-SHA-512\n"
    assert "se cret" not in result.output
    for name in BOTH:
        mechanism = SCRAM_MECHANISMS[name]
        salt, salted = client.brokers.passwords["alice", mechanism.number]
        assert salted == mechanism.salted_password("se cret", salt, 4096)
    salts = {salt for salt, _ in client.brokers.passwords.values()}
    assert len(salts) == 2


def test_mechanism_and_iterations_can_be_chosen(client: Client) -> None:
    client("add", "alice", "--mechanism", "scram-sha-512", "--iterations", "8192", stdin="x")
    assert client.json("list") == [{"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 8192}]
    assert "16384" in client("add", "alice", "--iterations", "20000", stdin="x", code=2).output


def test_lists_of_users_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    client("list")
    client.brokers.users = {"b": {1: 4096, 2: 4096}, "a\x1b": {1: 5000}}
    client("list")
    snapshot("user-list", client.transcript)


def test_users_are_listed_with_each_mechanism(client: Client) -> None:
    assert client.json("list") == []
    client.brokers.users = {"b": {1: 4096, 2: 4096}, "a": {1: 5000}}
    rows = client.json("list")
    check_all_keys("user list", rows)
    assert rows == [
        {"user": "a", "mechanism": "SCRAM-SHA-256", "iterations": 5000},
        {"user": "b", "mechanism": "SCRAM-SHA-256", "iterations": 4096},
        {"user": "b", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
    ]


def test_a_user_is_deleted_after_a_question(client: Client) -> None:
    client.brokers.users = {"alice": {1: 4096, 2: 4096}}
    assert client("delete", "alice", stdin="n\n", code=1).stdout == ""
    output = client("delete", "alice", "--mechanism", "SCRAM-SHA-256", "--yes").stdout
    assert output == "deleted: alice, SCRAM-SHA-256\n"
    again = client("delete", "alice", "--mechanism", "SCRAM-SHA-256", "--yes").stdout
    assert again == "user 'alice' has no password for SCRAM-SHA-256\n"
    client("delete", "alice", stdin="y\n")
    assert client.brokers.users == {"alice": {}}
    [line] = client("delete", "alice", "--yes", code=1).stderr.splitlines()
    assert line == "Error: user 'alice' not found"


@pytest.mark.parametrize(
    ("name", "stdin", "message"),
    [("alice", "", "the password is empty"), ("", "x", "has no name"), ("alice", "x" * 1025, "longer than 1024")],
)
def test_a_missing_name_or_password_is_reported(client: Client, name: str, stdin: str, message: str) -> None:
    assert message in client("add", name, stdin=stdin, code=2).output


def test_a_refusal_is_one_line(client: Client) -> None:
    client.brokers.refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    [line] = client("add", "alice", stdin="x", code=1).stderr.splitlines()
    assert line == "Error: user 'alice' was not changed: CLUSTER_AUTHORIZATION_FAILED (no)"


def test_a_user_is_there_before_the_first_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    client = Prompt(["user"])
    client("add", "admin", "--data-dir", str(data), stdin="secret")
    client("add", "admin", "--data-dir", str(data), "--mechanism", "SCRAM-SHA-256", stdin="other")
    config = load_config(data_dirs=[str(data)])
    broker = open_broker(config, RealDisk(str(data)), SystemClock())
    try:
        for number, password in ((1, "other"), (2, "secret")):
            record = broker.metadata.image.access.scram_credentials["admin", number]
            mechanism = SCRAM_MECHANISMS[BOTH[number - 1]]
            expected = credential_of_password(mechanism, password, salt=record.salt)
            assert (record.stored_key, record.server_key) == (expected.stored_key, expected.server_key)
        in_use = client("add", "bob", "--data-dir", str(data), stdin="x", code=1)
        assert "another broker is using the log dir" in in_use.stderr
    finally:
        close_broker(broker)
