"""Brokers that reach each other over a listener with authentication: replicas, coordinators, markers.

Each node has one listener, which clients use as well. The nodes are processes, as a cluster has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kwire_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kwire_protocol.records import Record
from kwire_protocol.wire import Uuid

from devtools.ports import free_port
from kwire.cli import main
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import ClientError
from kwire.client.producing import Producer
from kwire.config.client_security import client_security
from kwire.runtime.clock import SystemClock
from kwire.security.tls.dev_certificates import DevAuthority
from testkit.security.oauth.issuer import claims, jwk, jwks, token
from testkit.servers.broker_process import BrokerProcess

NODES = (1, 2)
LOGIN = 'username="node" password="node-secret"'
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
MUTUAL_TLS = {
    "ssl.client.auth": "required",
    "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/",
    "super.users": "User:localhost;User:admin",
}
SCRAM = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "sasl.jaas.config": f"org.apache.kafka.common.security.scram.ScramLoginModule required {LOGIN};",
    "connections.max.reauth.ms": "1500",
    "super.users": "User:node",
}
PLAIN = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.jaas.config": f'{PLAIN_MODULE} required {LOGIN} user_node="node-secret";',
    "super.users": "User:node",
}
TOKENS = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "file://FOLDER/keys.json",
    "sasl.oauthbearer.token.endpoint.url": "file://FOLDER/token",
    "super.users": "User:alice",
}


@attrs.define
class Nodes:
    folder: Path
    protocol: str
    settings: dict[str, str]
    ports: dict[int, int] = attrs.field(factory=lambda: {node_id: free_port() for node_id in NODES})

    def properties(self, node_id: int) -> dict[str, str]:
        own = {
            "node.id": str(node_id),
            "kwire.cluster.dir": str(self.folder / "cluster"),
            "listeners": f"{self.protocol}://127.0.0.1:{self.ports[node_id]}",
            "security.inter.broker.protocol": self.protocol,
            "authorizer.class.name": AUTHORIZER,
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "2",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "2",
            "transaction.state.log.min.isr": "2",
        }
        settings = {name: text.replace("FOLDER", str(self.folder)) for name, text in self.settings.items()}
        return {**own, **self.stores("server.pem"), **settings}

    def stores(self, keystore: str) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
        }

    def cluster(self) -> Cluster:
        """Returns the client of an administrator."""
        of_node = self.properties(1)
        properties = {
            "security.protocol": self.protocol,
            "sasl.mechanism": of_node.get("sasl.enabled.mechanisms", ""),
            "sasl.jaas.config": of_node.get("sasl.jaas.config", ""),
            "sasl.oauthbearer.token.endpoint.url": of_node.get("sasl.oauthbearer.token.endpoint.url", ""),
            **self.stores("client.pem"),
        }
        security = client_security(properties, lambda: "a-nonce-for-tests")
        addresses = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        return Cluster(addresses, timeout_s=20, connect=security.connect, new_exchange=security.new_exchange)


@contextmanager
def running(folder: Path, protocol: str, settings: dict[str, str]) -> Iterator[Nodes]:
    authority = DevAuthority.new()
    (folder / "ca.pem").write_bytes(authority.certificate)
    (folder / "server.pem").write_bytes(authority.server())
    (folder / "client.pem").write_bytes(authority.client("admin"))
    (folder / "keys.json").write_bytes(jwks(jwk("k1")))
    now_s = SystemClock().now_ms() // 1000
    (folder / "token").write_text(token(claims(iat=now_s - 10, exp=now_s + 600)))
    nodes = Nodes(folder, protocol, settings)
    if settings is SCRAM:
        config = folder / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in nodes.properties(1).items()))
        command = ["user", "add", "node", "--config", str(config), "--data-dir", str(folder / "data-1")]
        added = CliRunner().invoke(main, command, input="node-secret")
        assert added.exit_code == 0, added.output
    with ExitStack() as stack:
        for node_id in NODES:
            own = folder / str(node_id)
            own.mkdir()
            given = [f"{name}={value}" for name, value in nodes.properties(node_id).items()]
            stack.enter_context(BrokerProcess(own, given, data_dir=folder / f"data-{node_id}", port=None))
        yield nodes


@pytest.mark.parametrize(
    ("protocol", "settings"),
    [("SSL", MUTUAL_TLS), ("SASL_SSL", SCRAM), ("SASL_PLAINTEXT", PLAIN), ("SASL_SSL", TOKENS)],
    ids=["certificates", "scram-over-tls", "plain", "tokens-over-tls"],
)
def test_nodes_replicate_and_coordinate_with_requests_to_each_other(
    tmp_path: Path, protocol: str, settings: dict[str, str]
) -> None:
    value = b"v" * 300_000
    with running(tmp_path, protocol, settings) as nodes, nodes.cluster() as cluster:
        cluster.until_done(lambda: create_topic(cluster))
        at = TopicPartition("t", 0)
        # A transaction goes to the leader of __transaction_state, and its markers to the leaders of its partitions.
        for number in range(3):
            producer = Producer(cluster, transactional_id=f"id-{number}")
            producer.init()
            with producer.transaction():
                producer.write(at, [Record(value=value)])
        cluster.until_done(lambda: check_all_in_sync(cluster))
        follower = next(it for it in NODES if it != cluster.leader(at))
        log = tmp_path / f"data-{follower}" / "t-0" / "00000000000000000000.log"
        assert log.read_bytes().count(value) == 3


def create_topic(cluster: Cluster) -> None:
    [created] = cluster.call(CreateTopicsRequest([CreatableTopic("t", 1, 2)], 10_000)).topics
    if created.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise TryAgain(f"{created.error_code} {created.error_message}")


def check_all_in_sync(cluster: Cluster) -> None:
    [topic] = cluster.metadata(["t"]).topics
    [partition] = topic.partitions
    if sorted(partition.isr_nodes) != list(NODES):
        raise TryAgain(f"in sync are {partition.isr_nodes}")


class TryAgain(ClientError):
    may_pass = True


def test_whoever_is_not_a_node_may_not_pose_as_one(tmp_path: Path) -> None:
    settings = {**PLAIN, "sasl.jaas.config": PLAIN["sasl.jaas.config"].replace(";", ' user_eve="e";')}
    with running(tmp_path, "SASL_PLAINTEXT", settings) as nodes:
        with nodes.cluster() as cluster:
            cluster.until_done(lambda: create_topic(cluster))
            topic_id = cluster.topic("t").topic_id
        eve = settings["sasl.jaas.config"].replace(LOGIN, 'username="eve" password="e"')
        with attrs.evolve(nodes, settings={**settings, "sasl.jaas.config": eve}).cluster() as cluster:
            assert cluster.metadata(None).topics == []
            [fetched] = cluster.call(fetch_as_replica(topic_id)).responses
            assert fetched.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            markers = WriteTxnMarkersRequest([WritableTxnMarker(1, 0, True, [WritableTxnMarkerTopic("t", [0])])])
            [marked] = cluster.call(markers).markers
            assert marked.topics[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def fetch_as_replica(topic_id: Uuid) -> FetchRequest:
    topics = [FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0, partition_max_bytes=1000)])]
    return FetchRequest(replica_state=ReplicaState(2, -1), topics=topics)
