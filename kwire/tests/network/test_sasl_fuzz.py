"""Thousands of exchanges that break the rules of SASL: none succeeds, and other clients are not affected."""

from __future__ import annotations

import gc
import logging
import random
import struct
from collections import Counter
from contextlib import suppress

import pytest
import trio
from kwire_protocol.conversation import Conversation
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest
from kwire_protocol.wire import ApiMessage

from kwire.network.connection import Connection
from kwire.security.sasl.exchange import Challenge, Known, SaslSession
from kwire.security.sasl.plain import PlainExchange
from kwire.security.sasl.scram import ScramExchange
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient
from testkit.security.sasl_scene import MECHANISMS, exchange, handshake, known_client, with_sasl_server

AT_ONCE = 20
OF_CONVERSATIONS = (Connection, SaslSession, PlainExchange, ScramExchange)
ASK = MetadataRequest([MetadataRequestTopic(name="t")])
PIECES = (
    b"",
    b"\0",
    b"n,,",
    b"y,,",
    b"p=x,,",
    b"n=alice",
    b",r=",
    b"m=",
    b"=2C",
    b"\xff",
    b",p=",
    b"c=biws",
    b"x" * 900,
)


def framed(request: ApiMessage, version: int) -> bytes:
    conversation = Conversation(first_correlation_id=0)
    conversation.send(request, version)
    return b"".join(bytes(part) for part in conversation.data_to_send())


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Returns the bytes, mostly changed in a few places."""
    changed = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 2, 8))):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(4):
            case 0 if at < len(changed):
                changed[at] ^= 1 << chance.randrange(8)
            case 1:
                del changed[at:]
            case 2:
                changed[at:at] = chance.choice(PIECES)
            case _:
                changed[at : at + chance.randrange(9)] = chance.randbytes(chance.randrange(9))
    return bytes(changed)


def message(chance: random.Random) -> bytes:
    """Draws a message of a client without the password."""
    first = exchange(chance.choice(MECHANISMS), chance.choice(("alice", "mallory", "\0")), "guessed").respond(None)
    assert first is not None
    return mutated(chance.choice((first, first, b"c=biws,r=noncex,p=" + b"A" * 44, chance.randbytes(30))), chance)


def request(chance: random.Random) -> bytes:
    kinds: tuple[tuple[ApiMessage, int], ...] = (
        (ApiVersionsRequest("kwire", "1"), 3),
        (SaslHandshakeRequest(chance.choice((*MECHANISMS, "GSSAPI", ""))), chance.randrange(2)),
        (SaslAuthenticateRequest(message(chance)), chance.randrange(3)),
        (SaslAuthenticateRequest(message(chance)), 2),
        (ASK, 9),
    )
    frame = framed(*chance.choice(kinds))
    match chance.randrange(8):
        case 0:
            data = message(chance)
            return struct.pack(">i", len(data)) + data
        case 1:
            return mutated(frame, chance)
        case 2:
            return struct.pack(">i", len(frame) - 4) + mutated(frame[4:], chance)
        case _:
            return frame


async def converse(client: TrioClient, chance: random.Random) -> None:
    """Sends in lock-step, until one side stops; or all of it at once."""
    if chance.random() < 0.3:
        await client.stream.send_all(b"".join(request(chance) for _ in range(chance.randrange(1, 30))))
    else:
        mechanism = chance.choice(MECHANISMS)
        await handshake(client, mechanism)
        machine = exchange(mechanism, chance.choice(("alice", "mallory")), "guessed")
        token = machine.respond(None)
        for _ in range(chance.randrange(3)):
            answer = await client.call(SaslAuthenticateRequest(mutated(token or b"", chance)), 2)
            with suppress(ValueError):
                token = machine.respond(bytes(answer.auth_bytes))
        await client.stream.send_all(request(chance))
    if chance.random() < 0.5:
        while await client.stream.receive_some(1 << 16):
            pass


@pytest.mark.parametrize(
    ("seed", "conversations"), [(0, 2_000), *(pytest.param(seed, 100_000, marks=pytest.mark.soak) for seed in (1, 2))]
)
def test_nobody_gets_in_who_does_not_know_a_password(
    monkeypatch: pytest.MonkeyPatch, seed: int, conversations: int
) -> None:
    left: Counter[type] = Counter()
    known: list[Known] = []
    respond = SaslSession.respond

    def noted(session: SaslSession, data: bytes, *, now_ms: int) -> Challenge | Known:
        step = respond(session, data, now_ms=now_ms)
        if isinstance(step, Known):
            known.append(step)
        return step

    monkeypatch.setattr(SaslSession, "respond", noted)
    # The records that pytest keeps have errors, whose frames have connections.
    monkeypatch.setattr(logging.getLogger("kwire"), "propagate", False)

    async def scenario(kwire: ServerInTrio) -> None:
        chance = random.Random(seed)
        bystander = await known_client(kwire)

        async def attack() -> None:
            for _ in range(conversations // AT_ONCE):
                client = await kwire.connect()
                with suppress(AssertionError, trio.BrokenResourceError, trio.ClosedResourceError):
                    await converse(client, chance)
                await client.hang_up()

        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(attack)
            for _ in range(100):
                response = await bystander.call(ASK, 9)
                assert [it.error_code for it in response.topics] == [0]
                await trio.sleep(0)
        with trio.fail_after(100):
            while kwire.connections > 1:
                await trio.sleep(0.1)
        gc.collect()
        left.update(type(it) for it in gc.get_objects() if isinstance(it, OF_CONVERSATIONS))
        assert kwire.server._pool.free_bytes < 1 << 22

    # What waits for more would wait in vain.
    settings = ["connection.failed.authentication.delay.ms=1", "kwire.authentication.timeout.ms=1000"]
    with_sasl_server(scenario, settings=[*settings, "sasl.server.max.receive.size=4096"])
    assert len(known) == 1
    # The bystander's; the processor's last event may keep another one, until there is the next.
    assert all(count <= 3 for count in left.values()), left
