"""`kwire quota` over a cluster that is made up."""

from __future__ import annotations

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)
from kwire_protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

from devtools.suite.snapshots import Snapshot
from kwire.admin.quotas import Entity
from kwire.client.cluster import Cluster
from testkit.cli.json_page import check_all_keys
from testkit.cli.prompt import ClusterClient
from testkit.fakes.brokers import FakeBrokers


@attrs.define
class QuotaBrokers:
    quotas: dict[Entity, dict[str, float]] = attrs.field(factory=dict)
    refusal: ErrorCode = ErrorCode.NONE

    def alter(self, _: int, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        for entry in request.entries:
            entity = tuple(sorted((it.entity_type, it.entity_name) for it in entry.entity))
            values = self.quotas.setdefault(entity, {})
            for it in entry.ops:
                if it.remove:
                    del values[it.key]
                else:
                    values[it.key] = it.value
        results = [AlterClientQuotasResponseEntryData(self.refusal, "no") for _ in request.entries]
        return AlterClientQuotasResponse(entries=results)

    def describe(self, _: int, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
        assert not request.components
        return DescribeClientQuotasResponse(
            entries=[
                EntryData([EntityData(*it) for it in entity], [ValueData(*it) for it in values.items()])
                for entity, values in self.quotas.items()
            ]
        )

    def cluster(self) -> Cluster:
        return FakeBrokers(
            answers={AlterClientQuotasRequest: self.alter, DescribeClientQuotasRequest: self.describe}
        ).cluster()


Client = ClusterClient[QuotaBrokers]
QUOTAS: dict[Entity, dict[str, float]] = {
    (("user", "alice"),): {"producer_byte_rate": 1048576.5},
    (("client-id", "c\x1b"), ("user", None)): {"request_percentage": 50, "consumer_byte_rate": 7},
}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    return Client.of("quota", QuotaBrokers(), monkeypatch)


def test_quotas_are_set_for_every_kind_of_entity(client: Client) -> None:
    output = client("set", "--user", "alice", "--producer-byte-rate", "1048576", "--request-percentage", "12.5").stdout
    assert output.splitlines() == [
        "user alice: producer_byte_rate is 1048576",
        "user alice: request_percentage is 12.5",
    ]
    output = client("set", "--user", "alice", "--default-client-id", "--consumer-byte-rate", "5e6").stdout
    assert output == "client-id <default>, user alice: consumer_byte_rate is 5000000\n"
    client("set", "--default-user", "--controller-mutation-rate", "3")
    client("set", "--ip", "10.0.0.7", "--connection-creation-rate", "10")
    assert client.brokers.quotas == {
        (("user", "alice"),): {"producer_byte_rate": 1048576, "request_percentage": 12.5},
        (("client-id", None), ("user", "alice")): {"consumer_byte_rate": 5e6},
        (("user", None),): {"controller_mutation_rate": 3},
        (("ip", "10.0.0.7"),): {"connection_creation_rate": 10},
    }


def test_lists_of_quotas_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    client("list")
    client.brokers.quotas = QUOTAS
    client("list")
    snapshot("quota-list", client.transcript)


def test_quotas_are_listed(client: Client) -> None:
    assert client.json("list") == []
    client.brokers.quotas = QUOTAS
    rows = client.json("list")
    check_all_keys("quota list", rows)
    assert [tuple(it.values()) for it in rows] == [
        ("<default>", "c\x1b", None, "consumer_byte_rate", 7),
        ("<default>", "c\x1b", None, "request_percentage", 50),
        ("alice", None, None, "producer_byte_rate", 1048576.5),
    ]
    assert rows[-1] == {
        "user": "alice",
        "client_id": None,
        "ip": None,
        "key": "producer_byte_rate",
        "value": 1048576.5,
    }


def test_some_or_all_quotas_of_an_entity_are_deleted(client: Client) -> None:
    values = {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0, "request_percentage": 3.0}
    client.brokers.quotas = {(("user", "a"),): values}
    output = client("delete", "--user", "a", "--key", "producer_byte_rate").stdout
    assert output == "user a: deleted producer_byte_rate\n"
    assert client("delete", "--user", "a", "--key", "producer_byte_rate").stdout == "user a has no such quota\n"
    assert client("delete", "--user", "a").stdout == "user a: deleted consumer_byte_rate, request_percentage\n"
    assert client("delete", "--user", "b").stdout == "user b has no such quota\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", "--producer-byte-rate", "1"), "say for whom"),
        (("set", "--user", "a"), "say what: --producer-byte-rate"),
        (("set", "--user", "a", "--default-user", "--producer-byte-rate", "1"), "exclude each other"),
        (("set", "--user", "a", "--producer-byte-rate", "much"), "'much' is not a valid float"),
        (("delete",), "say for whom"),
        (("delete", "--user", "a", "--key", "speed"), "'speed' is none of producer_byte_rate"),
    ],
)
def test_what_is_missing_or_wrong_is_reported(client: Client, arguments: tuple[str, ...], message: str) -> None:
    assert message in client(*arguments, code=2).output


def test_a_refusal_is_one_line(client: Client) -> None:
    client.brokers.refusal = ErrorCode.INVALID_REQUEST
    [line] = client("set", "--user", "a", "--producer-byte-rate", "1", code=1).stderr.splitlines()
    assert line == "Error: the quotas of user a were not changed: INVALID_REQUEST (no)"
