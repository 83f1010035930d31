"""Holes that Kafka had, one test each: none of them is open here.

Others have tests where their code is: tokens without a signature, and those signed by HMAC with a public key
(`oauth/test_signed_tokens.py`), a key server that does not answer (`oauth/test_key_refresh.py`), lengths of messages
(`protocol/tests`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import attrs
import pytest
from kwire_protocol.compression import SNAPPY, CorruptData, DecompressionTooLarge, decompress
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import fetch, produce
from kwire_protocol.records import Record, build_batch

from kwire.config.definition import ConfigError
from kwire.config.server import load_config
from kwire.metadata.controller.configs.config_changes import ConfigChange, alter_configs
from kwire.metadata.controller.configs.config_changes import Operation as ConfigOperation
from kwire.metadata.image import ConfigResourceType
from kwire.node.broker import Broker
from kwire.security.authorizer import Operation, ResourceType
from kwire.security.sasl.exchange import AuthenticationFailed
from kwire.security.sasl.plain import Plain
from testkit.basics.futures import at_once
from testkit.security.requests import ID, TOPIC, Denier, call, open_broker, topic_id

SECRET = b"s" * 32
JNDI = 'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://127.0.0.1:1/x";'


@pytest.fixture
def broker() -> Iterator[Broker]:
    with open_broker() as opened:
        yield opened


def test_a_user_cannot_log_in_as_another_one_by_an_authorization_id() -> None:
    """CVE-2017-12610. `sasl/test_scram.py` has the same of SCRAM."""
    plain = Plain({"alice": "a", "bob": "b"}, secret=SECRET)
    with pytest.raises(AuthenticationFailed):
        plain.begin().respond(b"bob\0alice\0a", now_ms=0)


def test_a_consumer_cannot_fetch_as_a_replica(broker: Broker) -> None:
    """CVE-2018-1288: it would be taken for in sync, and what it claims to have for replicated."""
    broker.authorization.authorizer = Denier({(Operation.READ, ResourceType.TOPIC, TOPIC)})
    topics = [fetch.FetchTopic(topic_id=topic_id(broker), partitions=[fetch.FetchPartition(0, fetch_offset=1)])]
    request = fetch.FetchRequest(replica_state=fetch.ReplicaState(7, 1), max_bytes=1000, topics=topics)
    before = attrs.asdict(broker.partitions.find(TOPIC, 0).role, recurse=False)
    [topic] = call(broker, "fetch", request).responses
    assert topic.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert attrs.asdict(broker.partitions.find(TOPIC, 0).role, recurse=False) == before


def test_a_transactional_batch_needs_the_right_to_its_transactional_id(broker: Broker) -> None:
    """CVE-2018-17196."""
    broker.authorization.authorizer = Denier({(Operation.WRITE, ResourceType.TOPIC, TOPIC)})
    batch = build_batch([Record(value=b"x")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    data = [produce.PartitionProduceData(0, memoryview(bytearray(batch)))]
    request = produce.ProduceRequest(ID, -1, 1000, [produce.TopicProduceData(TOPIC, topic_id(broker), data)])
    before = broker.partitions.find(TOPIC, 0).log_end_offset
    [topic] = call(broker, "produce", request).responses
    assert topic.partition_responses[0].error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert broker.partitions.find(TOPIC, 0).log_end_offset == before


def test_a_login_module_is_no_class_that_is_loaded(broker: Broker) -> None:
    """CVE-2023-25194: whoever could change a configuration could have code fetched by JNDI, and run."""
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    with pytest.raises(ConfigError, match="JndiLoginModule: the one of PLAIN is"):
        load_config(
            settings=["listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=PLAIN", f"{name}={JNDI}"]
        )
    change = ConfigChange(ConfigResourceType.BROKER, "1", [("sasl.jaas.config", ConfigOperation.SET, JNDI)])
    at_once(broker.metadata.change(alter_configs, [change], validate_only=False))
    assert not broker.config.sasl


@pytest.mark.parametrize("size", [0x7FFFFFFF, -1, 1 << 30])
def test_a_compressed_chunk_takes_no_more_memory_than_is_there(size: int) -> None:
    """CVE-2023-34455: snappy-java made room for as much as a chunk claimed to have."""
    framed = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, size)
    with pytest.raises((CorruptData, DecompressionTooLarge)):
        decompress(SNAPPY, framed, 1 << 20)
