"""A follower's connection to a leader that is slow, broken or hostile. The socket, the loop and the time are fakes."""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Callable
from typing import Any, cast

import attrs
import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.headers import RequestHeader, read_request_header, response_head
from kwire_protocol.messages import APIS
from kwire_protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kwire_protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from kwire_protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kwire_protocol.wire import ApiMessage, Reader, Writer
from trio.testing import MockClock

from kwire.client.login import NewExchange
from kwire.client.transport import Address
from kwire.replication.connection import REPLY_OVERHEAD_BYTES, FetcherEnvironment, LeaderConnection
from kwire.replication.fetching import FIRST_PAUSE_MS, Fetcher, FetchSettings
from kwire.runtime.poll import READ, WRITE
from kwire.runtime.processor import Timer
from kwire.runtime.transport import Transport
from testkit.worlds.replication.listed_log import EPOCH, KEY, ListedLog, batch, records, response

BACKOFF_MS = 1000
TIMEOUT_MS = 30_000
SETTINGS = FetchSettings(backoff_ms=BACKOFF_MS)
SERVED = [ApiVersion(FetchRequest.api_key, 4, 17), ApiVersion(ListOffsetsRequest.api_key, 1, 10)]


@attrs.define(eq=False)
class FakeSocket:
    """The follower's end. It takes `room` bytes in all, until it is given more."""

    room: float = math.inf
    sent: bytearray = attrs.field(factory=bytearray)
    arriving: bytearray = attrs.field(factory=bytearray)
    is_ended: bool = False
    """By the leader."""
    is_closed: bool = False

    has_more: Callable[[], bool] | None = None
    """It is its own transport."""

    @property
    def sock(self) -> FakeSocket:
        return self

    def send(self, data: memoryview, _flags: int) -> int:
        count = int(min(len(data), self.room))
        if not count:
            raise BlockingIOError
        self.room -= count
        self.sent += data[:count]
        return count

    def recv_into(self, buffer: memoryview) -> int:
        count = min(len(buffer), len(self.arriving))
        if not count and not self.is_ended:
            raise BlockingIOError
        buffer[:count] = self.arriving[:count]
        del self.arriving[:count]
        return count

    def close(self) -> None:
        self.is_closed = True


@attrs.define(eq=False)
class FakeLoop:
    now: float = 0.0
    watched: dict[FakeSocket, tuple[Callable[[int], None], int]] = attrs.field(factory=dict)
    timers: set[Timer] = attrs.field(factory=set)

    def add(self, sock: FakeSocket, on_ready: Callable[[int], None]) -> None:
        self.watched[sock] = on_ready, READ

    def watch(self, sock: FakeSocket, interest: int) -> None:
        self.watched[sock] = self.watched[sock][0], interest

    def remove(self, sock: FakeSocket) -> None:
        del self.watched[sock]

    def start_timer(self, timer: Timer, deadline: float) -> None:
        timer.deadline = deadline
        self.timers.add(timer)

    def sleep(self, seconds: float) -> None:
        """Lets time pass, and calls what is due."""
        self.now += seconds
        for timer in self.timers:
            if timer.deadline <= self.now:
                timer.stop()
                timer.callback()


@attrs.define(eq=False)
class Leader:
    """The leader's end, and a follower with one partition."""

    log: ListedLog = attrs.field(factory=ListedLog)
    loop: FakeLoop = attrs.field(factory=FakeLoop)
    sockets: list[FakeSocket] = attrs.field(factory=list)
    address: Address | None = ("leader", 9092)
    room: float = math.inf
    refusal: OSError | None = None
    new_exchange: NewExchange | None = None
    fetcher: Fetcher = attrs.field(init=False)
    connection: LeaderConnection = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.fetcher = Fetcher(2, 1, 77, SETTINGS)
        self.fetcher.follow(KEY, "t", EPOCH, self.log)
        around = FetcherEnvironment(
            cast(Any, self.loop),
            Timer,
            lambda task: trio.run(task, clock=MockClock(autojump_threshold=0)),
            lambda: int(self.loop.now * 1000),
            lambda _: self.address,
            lambda: TIMEOUT_MS,
            "follower",
            self._connect,
            self.new_exchange,
        )
        self.connection = LeaderConnection(self.fetcher, around)

    async def _connect(self, _address: Address) -> Transport:
        if self.refusal is not None:
            raise self.refusal
        sock = FakeSocket(self.room)
        self.sockets.append(sock)
        return cast(Transport, sock)

    @property
    def sock(self) -> FakeSocket:
        return self.sockets[-1]

    @property
    def is_connected(self) -> bool:
        return bool(self.sockets) and not self.sock.is_closed

    def request(self) -> tuple[RequestHeader, Any]:
        """Returns the next request that has arrived whole."""
        (size,) = struct.unpack_from(">i", self.sock.sent)
        frame = bytes(self.sock.sent[4 : 4 + size])
        assert len(frame) == size
        del self.sock.sent[: 4 + size]
        reader = Reader(memoryview(frame))
        header = read_request_header(reader)
        return header, APIS[header.api_key].request_class.read(reader, header.api_version)

    def fetch(self) -> tuple[RequestHeader, FetchRequest]:
        header, request = self.request()
        assert isinstance(request, FetchRequest)
        return header, request

    def send(self, data: bytes, piece: int = 1 << 30) -> None:
        """Sends until the follower has taken it, or has closed the connection."""
        sock = self.sock
        for start in range(0, len(data), piece):
            sock.arriving += data[start : start + piece]
            while sock.arriving and not sock.is_closed:
                self.loop.watched[sock][0](READ)

    def negotiate(self, served: list[ApiVersion] = SERVED) -> None:
        header, request = self.request()
        assert isinstance(request, ApiVersionsRequest)
        self.send(reply(header, ApiVersionsResponse(api_keys=served)))

    def begin(self) -> tuple[RequestHeader, FetchRequest]:
        """Runs up to the first fetch of the connection."""
        self.connection.poke()
        self.negotiate()
        return self.fetch()


def reply(header: RequestHeader, message: ApiMessage) -> bytes:
    writer = Writer()
    writer.begin_frame(response_head(header.api_key, header.api_version, header.correlation_id))
    message.write(writer, header.api_version)
    writer.end_frame()
    return writer.getvalue()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it.getMessage() for it in caplog.records if it.levelno >= logging.WARNING]


def test_a_reply_that_arrives_byte_by_byte_is_taken_and_the_next_request_sent() -> None:
    leader = Leader()
    header, _ = leader.begin()
    leader.send(reply(header, response(records(batch(0, 3)))), piece=1)
    assert leader.log.log_end_offset == 3
    _, request = leader.fetch()
    assert request.topics[0].partitions[0].fetch_offset == 3


def test_a_request_that_the_socket_takes_in_parts_arrives_whole() -> None:
    leader = Leader(room=1)
    leader.connection.poke()
    sock = leader.sock
    while leader.loop.watched[sock][1] == WRITE:
        sock.room += 1
        leader.loop.watched[sock][0](WRITE)
    sock.room = math.inf
    leader.negotiate()
    assert leader.fetch()[1].topics


def other_correlation_id(header: RequestHeader) -> bytes:
    return reply(header._replace(correlation_id=header.correlation_id + 1), FetchResponse())


def cut_short(header: RequestHeader) -> bytes:
    whole = reply(header, response(records(batch(0))))
    return struct.pack(">i", len(whole) - 4 - 9) + whole[4:-9]


def with_bytes_left_over(header: RequestHeader) -> bytes:
    whole = reply(header, response(records(batch(0))))
    return struct.pack(">i", len(whole) - 4 + 9) + whole[4:] + bytes(9)


HOSTILE: dict[str, Callable[[RequestHeader], bytes]] = {
    "too long": lambda _: struct.pack(">i", SETTINGS.response_max_bytes + REPLY_OVERHEAD_BYTES + 1),
    "of a negative size": lambda _: struct.pack(">i", -5),
    "to another request": other_correlation_id,
    "cut short": cut_short,
    "with bytes left over": with_bytes_left_over,
    "another protocol": lambda _: b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_reply_that_breaks_the_protocol_ends_the_connection(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each time. There is one line in the log, a back-off, and in the end an honest answer."""
    leader = Leader()
    leader.connection.poke()
    for attempt in range(3):
        leader.negotiate()
        leader.send(HOSTILE[what](leader.fetch()[0]))
        assert not leader.is_connected
        assert not leader.loop.watched
        leader.loop.sleep(BACKOFF_MS / 1000 - 0.1)
        assert len(leader.sockets) == attempt + 1
        leader.loop.sleep(0.1)
        assert leader.is_connected
    assert len(warnings(caplog)) == 1
    leader.negotiate()
    header, request = leader.fetch()
    assert request.topics[0].partitions[0].fetch_offset == 0
    assert request.session_epoch == 0
    leader.send(reply(header, response(records(batch(0)))))
    assert leader.log.log_end_offset == 1


def test_a_trouble_that_comes_again_after_an_honest_answer_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader()
    header, _ = leader.begin()
    for count in (1, 2):
        leader.send(reply(header, response()))
        header, _ = leader.fetch()
        leader.sock.is_ended = True
        leader.loop.watched[leader.sock][0](READ)
        assert len(warnings(caplog)) == count
        leader.loop.sleep(BACKOFF_MS / 1000)
        leader.negotiate()
        header, _ = leader.fetch()


def test_the_warning_that_a_node_may_not_follow_names_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader()
    header, _ = leader.begin()
    leader.send(reply(header, response(PartitionData(0, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))))
    [warning] = warnings(caplog)
    assert "TOPIC_AUTHORIZATION_FAILED" in warning
    assert "has to be in the leader's super.users" in warning


def test_a_leader_that_only_claims_a_large_reply_costs_little_memory() -> None:
    leader = Leader()
    leader.begin()
    leader.send(struct.pack(">i", SETTINGS.response_max_bytes + REPLY_OVERHEAD_BYTES) + bytes(1000))
    assert leader.is_connected
    conversation = leader.connection._conversation
    assert conversation is not None
    assert conversation.held_bytes < 8 << 20


def test_a_leader_that_answers_too_slowly_is_left_however_much_arrives(caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader()
    header, _ = leader.begin()
    whole = reply(header, response(records(batch(0))))
    for start in range(3):
        leader.loop.sleep(TIMEOUT_MS / 1000 / 4)
        leader.send(whole[start : start + 1])
    assert warnings(caplog) == []
    leader.loop.sleep(TIMEOUT_MS / 1000 / 4)
    assert not leader.is_connected
    assert "no answer in time" in warnings(caplog)[0]


def test_a_leader_that_does_not_tell_its_versions_is_left() -> None:
    leader = Leader()
    leader.connection.poke()
    leader.loop.sleep(TIMEOUT_MS / 1000)
    assert not leader.is_connected


@pytest.mark.parametrize("served", [[], [ApiVersion(FetchRequest.api_key, 0, 14)]])
def test_a_leader_that_is_too_old_is_logged_once(served: list[ApiVersion], caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader()
    leader.connection.poke()
    for _ in range(3):
        leader.negotiate(served)
        assert not leader.is_connected
        leader.loop.sleep(BACKOFF_MS / 1000)
    (warning,) = warnings(caplog)
    assert "does not serve Fetch 15 to 17" in warning


@pytest.mark.parametrize("why", ["its address is not known", "refused by the fake"])
def test_a_leader_that_cannot_be_reached_is_tried_again_after_the_back_off(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    leader = Leader()
    leader.address = None if "address" in why else ("leader", 9092)
    leader.refusal = OSError(why)
    leader.connection.poke()
    for _ in range(3):
        leader.connection.poke()  # which metadata and flushes do at any time
        assert not leader.sockets
        leader.loop.sleep(BACKOFF_MS / 1000)
    (warning,) = warnings(caplog)
    assert why in warning
    leader.address, leader.refusal = ("leader", 9092), None
    leader.loop.sleep(BACKOFF_MS / 1000)
    leader.negotiate()
    assert leader.fetch()[1].topics


def test_connecting_takes_no_longer_than_a_request(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_leader: Leader, _address: Address) -> Transport:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(Leader, "_connect", hang)
    leader = Leader()
    leader.connection.poke()
    assert "no answer in time" in warnings(caplog)[0]
    assert leader.fetcher.next_deadline_ms() == BACKOFF_MS


def test_a_connection_that_is_made_after_its_end_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    sock = FakeSocket()

    async def connect_late(leader: Leader, _address: Address) -> Transport:
        leader.connection.close()
        return cast(Transport, sock)

    monkeypatch.setattr(Leader, "_connect", connect_late)
    leader = Leader()
    leader.connection.poke()
    assert sock.is_closed
    assert not leader.loop.watched
    assert not sock.sent


def test_a_partition_that_waits_for_an_election_does_not_wait_for_the_others_as_well() -> None:
    leader = Leader()
    elected = (KEY[0], 1)
    leader.fetcher.follow(elected, "t", EPOCH, ListedLog())
    header, _ = leader.begin()
    not_yet = PartitionData(1, int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    leader.send(reply(header, response(PartitionData(0), not_yet)))
    header, request = leader.fetch()  # the leader may take half a second to answer this one
    assert [it.partitions for it in request.forgotten_topics_data] == [[1]]
    leader.loop.sleep(FIRST_PAUSE_MS / 1000)
    hurrying, _ = leader.request()
    leader.send(reply(header, response()) + reply(hurrying, ListOffsetsResponse()))
    _, request = leader.fetch()
    assert [it.partition for it in request.topics[0].partitions] == [1]


def test_what_is_followed_next_ends_the_leaders_wait_once() -> None:
    leader = Leader()
    header, _ = leader.begin()
    for index in (1, 2):
        leader.fetcher.follow((KEY[0], index), "t", EPOCH, ListedLog())
        leader.connection.poke()
    hurrying, request = leader.request()
    assert isinstance(request, ListOffsetsRequest)
    assert not request.topics
    assert not leader.sock.sent
    leader.send(reply(header, response()) + reply(hurrying, ListOffsetsResponse()))
    _, next_fetch = leader.fetch()
    assert [it.partition for it in next_fetch.topics[0].partitions] == [1, 2]


# Leaders that require a login

OF_SASL = [ApiVersion(SaslHandshakeRequest.api_key, 0, 1), ApiVersion(SaslAuthenticateRequest.api_key, 0, 2)]


@attrs.define
class Secret:
    """A mechanism of one step."""

    mechanism: str = "SECRET"

    def respond(self, challenge: bytes | None) -> bytes | None:
        return b"secret" if challenge is None else None


def log_in(leader: Leader, *, lifetime_ms: int = 0, code: int = 0) -> None:
    header, request = leader.request()
    assert request == SaslHandshakeRequest("SECRET")
    leader.send(reply(header, SaslHandshakeResponse(0, ["SECRET"])))
    header, request = leader.request()
    assert request == SaslAuthenticateRequest(b"secret")
    leader.send(reply(header, SaslAuthenticateResponse(code, "no" if code else None, session_lifetime_ms=lifetime_ms)))


def test_a_follower_introduces_itself_before_it_fetches_and_again_before_that_ends() -> None:
    leader = Leader(new_exchange=Secret)
    leader.connection.poke()
    leader.negotiate([*SERVED, *OF_SASL])
    assert leader.fetcher.has_request_in_flight is False
    log_in(leader, lifetime_ms=10_000)
    header, _ = leader.fetch()
    leader.loop.sleep(9)
    leader.send(reply(header, response(records(batch(0, 3)))))
    log_in(leader)
    _, request = leader.fetch()
    assert request.topics[0].partitions[0].fetch_offset == 3
    assert len(leader.sockets) == 1


def test_a_leader_that_does_not_let_the_follower_in_is_logged_once_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leader = Leader(new_exchange=Secret)
    leader.connection.poke()
    for _ in range(3):
        leader.negotiate([*SERVED, *OF_SASL])
        log_in(leader, code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        assert not leader.is_connected
        leader.loop.sleep(BACKOFF_MS / 1000)
        leader.connection.poke()
    [warning] = warnings(caplog)
    assert "cannot log in at leader 2 with SECRET: no" in warning
    assert len(leader.sockets) == 4


def test_a_leader_without_sasl_and_one_that_does_not_answer_are_left() -> None:
    leader = Leader(new_exchange=Secret)
    leader.connection.poke()
    leader.negotiate(SERVED)
    assert leader.sock.is_closed
    leader.loop.sleep(BACKOFF_MS / 1000)
    leader.connection.poke()
    leader.negotiate([*SERVED, *OF_SASL])
    leader.loop.sleep(TIMEOUT_MS / 1000)
    assert [it.is_closed for it in leader.sockets] == [True, True]


def test_what_the_transport_has_taken_from_the_socket_is_received_without_another_event() -> None:
    leader = Leader()
    header, _ = leader.begin()
    sock = leader.sock
    pieces = [reply(header, response(records(batch(0, 3))))[at : at + 7] for at in range(0, 200, 7)]

    def more_arrives() -> bool:
        if pieces:
            sock.arriving += pieces.pop(0)
        return bool(sock.arriving)

    sock.has_more = more_arrives
    sock.arriving += pieces.pop(0)
    leader.loop.watched[sock][0](READ)
    assert leader.log.log_end_offset == 3
