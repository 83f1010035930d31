"""A broker process with few descriptors, of which idle connections would take all."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import APIS as MESSAGES
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.describe_acls import DescribeAclsRequest
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from devtools.ports import free_port
from kwire.client.transport import parse_addresses
from kwire.handlers.apis import served_apis
from testkit.raw.client import ConnectionClosed, RawClient
from testkit.servers.broker_process import BrokerProcess

DESCRIPTORS, IDLE = 160, 240
ANY = 1
"""Type, operation or permission of ACLs."""
REMOVED_WITHIN_S = 20.0
SMALL_SEGMENTS = [CreatableTopicConfig("segment.bytes", str(1 << 20)), CreatableTopicConfig("segment.ms", "1")]


@contextmanager
def idle_connections(address: str, count: int) -> Iterator[list[socket.socket]]:
    """Opens them; some wait to be accepted, as long as this lasts."""
    (to,) = parse_addresses(address)
    with ExitStack() as closed:
        made = []
        for _ in range(count):
            sock = closed.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            sock.setblocking(False)
            sock.connect_ex(to)
            made.append(sock)
        yield made


def one_record(number: int) -> ProduceRequest:
    """Makes a request for one of four partitions of `t`, so much later than the last that it begins a segment."""
    batch = build_batch([Record(0, 10**12 + 1000 * number, None, b"%d" % number)])
    return ProduceRequest(
        None, 1, 1000, [TopicProduceData("t", partition_data=[PartitionProduceData(number % 4, batch)])]
    )


def is_served(address: str) -> bool:
    """Tries for a second: the system takes long to try again what it dropped when the backlog was full."""
    try:
        with RawClient(address, timeout_s=1.0) as client:
            return bool(client.call(ApiVersionsRequest(), 0).api_keys)
    except (OSError, ConnectionClosed):
        return False


def eventually(what: str, probe: Callable[[], bool]) -> None:
    until = time.monotonic() + REMOVED_WITHIN_S
    while not probe():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def test_idle_connections_leave_descriptors_to_files_and_to_what_is_loaded_late(tmp_path: Path) -> None:
    apis = served_apis(unstable=False)
    settings = ["log.segment.delete.delay.ms=10", "auto.create.topics.enable=false", "log.cleaner.backoff.ms=10"]
    with (
        BrokerProcess(tmp_path, settings, descriptors=DESCRIPTORS) as broker,
        RawClient(broker.address) as client,
    ):
        client.call(ApiVersionsRequest(), 0)
        with idle_connections(broker.address, IDLE) as idle:
            eventually("the log says that connections wait", lambda: "others wait" in broker.log())
            assert broker.open_descriptors() < DESCRIPTORS - 20
            created = client.call(
                CreateTopicsRequest([CreatableTopic(name, 4, 1, configs=SMALL_SEGMENTS) for name in "tuv"], 5000), 7
            )
            assert [it.error_code for it in created.topics] == [ErrorCode.NONE] * 3
            for number in range(40):
                (answer,) = client.call(one_record(number), 9).responses
                assert answer.partition_responses[0].error_code == ErrorCode.NONE, number
            assert len(list(broker.data_dir.glob("t-0/*.log"))) == 10
            deleted = client.call(DeleteTopicsRequest([DeleteTopicState("u")], timeout_ms=5000), 6)
            assert deleted.responses[0].error_code == ErrorCode.NONE
            for key in apis.keys() - {ProduceRequest.api_key}:  # which is in use already
                request = MESSAGES[key].request_class()
                if isinstance(request, DescribeAclsRequest):
                    request = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
                assert client.call(request, apis[key].versions[-1]), apis[key].name
            eventually("what was deleted is removed", lambda: not list(broker.data_dir.glob("u-*")))
            # Whoever waits is served as soon as others go.
            for sock in idle[:-20]:
                sock.close()
            eventually("who comes now is served", lambda: is_served(broker.address))
        assert broker.is_running
        assert broker.bugs() == []
        for problem in ("Too many open files", "a bug in kwire", "out of service"):
            assert problem not in broker.log(), broker.log()[-3000:]
        assert broker.stop() == 0


def test_a_broker_gets_in_at_a_listener_of_its_own_and_the_client_that_was_idle_for_longest_goes(
    tmp_path: Path,
) -> None:
    clients, brokers = free_port(), free_port()
    settings = [
        f"listeners=CLIENTS://127.0.0.1:{clients},BROKERS://127.0.0.1:{brokers}",
        "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name=BROKERS",
        "max.connections=2",
    ]
    with (
        BrokerProcess(tmp_path, settings, port=None) as broker,
        RawClient(f"127.0.0.1:{clients}") as idle,
        RawClient(f"127.0.0.1:{clients}") as busy,
    ):
        for client in (idle, busy):
            assert client.call(ApiVersionsRequest(), 0).api_keys
        with RawClient(f"127.0.0.1:{brokers}") as other:
            assert other.call(ApiVersionsRequest(), 0).api_keys
            assert idle.is_closed_by_peer()
            assert busy.call(ApiVersionsRequest(), 0).api_keys
        assert "another broker needs the room" in broker.log()
