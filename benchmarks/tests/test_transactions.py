"""The transactional load against a peer that refuses, fences and hands out ids."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.headers import read_request_header, response_head
from kwire_protocol.messages import APIS
from kwire_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire_protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kwire_protocol.records import check_batch, read_header
from kwire_protocol.wire import ApiMessage, Reader, Writer

from benchmarks.load.answers import BadAnswer
from benchmarks.load.replay import connect
from benchmarks.load.requests import value_batch
from benchmarks.load.transactions import Producers

NONE, CONCURRENT, FENCED = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED
PRODUCER_ID = 7


@attrs.define(eq=False)
class Peer:
    """Answers with the codes that are left of its API, then with none; bumps the epoch, and at 2 the producer id."""

    codes: dict[int, list[ErrorCode]]
    received: list[tuple[int, int, Any]] = attrs.field(factory=list)  # API key, version, request

    def serve(self, sock: socket.socket) -> None:
        stream = sock.makefile("rb")
        with stream, sock:
            while size := stream.read(4):
                reader = Reader(stream.read(int.from_bytes(size, "big")))
                header = read_request_header(reader)
                request = APIS[header.api_key].request_class.read(reader, header.api_version)
                self.received.append((header.api_key, header.api_version, request))
                left = self.codes.get(header.api_key)
                answer = self._answer(request, left.pop(0) if left else NONE)
                writer = Writer()
                writer.begin_frame(response_head(header.api_key, header.api_version, header.correlation_id))
                answer.write(writer, header.api_version)
                writer.end_frame()
                sock.sendall(writer.getvalue())

    def _answer(self, request: ApiMessage, code: ErrorCode) -> ApiMessage:
        match request:
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(error_code=code)
            case InitProducerIdRequest():
                return InitProducerIdResponse(error_code=code, producer_id=PRODUCER_ID, producer_epoch=1)
            case ProduceRequest(topic_data=[topic]):
                parts = [PartitionProduceResponse(data.index, code) for data in topic.partition_data]
                return ProduceResponse([TopicProduceResponse(topic.name, partition_responses=parts)])
            case EndTxnRequest(producer_id=producer_id, producer_epoch=epoch):
                following = (producer_id, epoch + 1) if epoch < 2 else (producer_id + 1, 0)
                return EndTxnResponse(0, code, *following)
        raise AssertionError(f"the load does not send {request}")

    def of(self, api: type[ApiMessage]) -> list[Any]:
        return [request for key, _, request in self.received if key == api.api_key]


@contextmanager
def load_on(
    codes: dict[int, list[ErrorCode]] | None = None, *, producers: int = 1, partitions: int = 2
) -> Iterator[tuple[Producers, Peer]]:
    peer = Peer(codes or {})
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        threads: list[threading.Thread] = []

        def accept() -> None:
            for _ in range(producers + 1):  # and one on which they are initialized
                threads.append(threading.Thread(target=peer.serve, args=[listener.accept()[0]]))
                threads[-1].start()

        @stack.callback
        def join() -> None:  # after the sockets below are closed
            for thread in threads:
                thread.join()

        accepting = threading.Thread(target=accept)
        accepting.start()
        port = listener.getsockname()[1]
        sockets = [stack.enter_context(sock) for sock in connect(port, producers)]
        batch = value_batch(3, 10, transactional=True)
        load = Producers(port, sockets, "t", partitions, batch)
        accepting.join()
        stack.callback(load.close)
        yield load, peer


def batches(peer: Peer) -> list[tuple[int, bytes]]:
    """Partition and batch of each Produce."""
    parts = [request.topic_data[0].partition_data[0] for request in peer.of(ProduceRequest)]
    return [(part.index, bytes(part.records)) for part in parts]


def test_each_transaction_has_the_id_and_epoch_that_the_end_of_the_last_one_returned_and_the_next_partition() -> None:
    with load_on() as (load, peer):
        for _ in range(3):
            load.run(0)
    found = [(index, read_header(batch, 0)) for index, batch in batches(peer)]
    assert [(index, header.producer_id, header.producer_epoch) for index, header in found] == [
        (0, PRODUCER_ID, 1),
        (1, PRODUCER_ID, 2),
        (0, PRODUCER_ID + 1, 0),
    ]
    assert all(header.is_transactional and header.base_sequence == 0 for _, header in found)
    ends = [(end.producer_id, end.producer_epoch, end.committed) for end in peer.of(EndTxnRequest)]
    assert ends == [(header.producer_id, header.producer_epoch, True) for _, header in found]


def test_batches_are_whole_whatever_epoch_is_written_into_them() -> None:
    with load_on() as (load, peer):
        load.run(0)
        load.run(0)
    for _, batch in batches(peer):
        check_batch(batch, read_header(batch, 0))  # raises if its checksum is wrong


def test_requests_have_the_versions_of_transaction_version_2() -> None:
    with load_on() as (load, peer):
        load.run(0)
    versions = {key: version for key, version, _ in peer.received}
    assert versions[ProduceRequest.api_key] >= 12
    assert versions[EndTxnRequest.api_key] >= 5


@pytest.mark.parametrize(("api", "other"), [(ProduceRequest, EndTxnRequest), (EndTxnRequest, ProduceRequest)])
def test_what_is_refused_as_concurrent_is_sent_again_and_counted(
    api: type[ApiMessage], other: type[ApiMessage]
) -> None:
    with load_on({api.api_key: [CONCURRENT, CONCURRENT]}) as (load, peer):
        load.run(0)
        assert load.refused == 2
    first, *again = peer.of(api)
    assert again == [first, first]
    assert len(peer.of(other)) == 1


@pytest.mark.parametrize("api", [ProduceRequest, EndTxnRequest])
def test_any_other_error_ends_the_load(api: type[ApiMessage]) -> None:
    with (
        load_on({api.api_key: [FENCED]}) as (load, _),
        pytest.raises(BadAnswer, match=f"bench-0: {FENCED.value}"),
    ):
        load.run(0)


def test_a_producer_waits_for_its_coordinator() -> None:
    codes = {
        FindCoordinatorRequest.api_key: [ErrorCode.COORDINATOR_NOT_AVAILABLE],
        InitProducerIdRequest.api_key: [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
    }
    with load_on(codes) as (_, peer):
        pass
    assert [key for key, _, _ in peer.received] == [10, 10, 22, 22, 22]


def test_a_run_leaves_no_transaction_open() -> None:
    with load_on(producers=5) as (load, peer):
        load.run(0.02)
        assert len(peer.of(ProduceRequest)) == len(peer.of(EndTxnRequest)) >= 5
    assert {request.transactional_id for request in peer.of(EndTxnRequest)} == {f"bench-{n}" for n in range(5)}
