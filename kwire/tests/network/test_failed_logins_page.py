"""docs/security.md on failed logins: the log lines in its table are those of a broker, each of them."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import pytest
import trio
from kwire_protocol.messages.metadata import MetadataRequest
from trio.testing import wait_all_tasks_blocked

from devtools.places import REPOSITORY
from kwire.network.listener_security import ListenerSecurity
from kwire.runtime.tls_transport import TlsTransport
from kwire.security.tls.contexts import client_context, server_context
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient, with_server
from testkit.security.sasl_scene import handshake, login, say, with_sasl_server
from testkit.security.tls.certificates import HOST, client_settings, server_settings

PAGE: Final = REPOSITORY / "docs" / "security.md"
SCRAM: Final = "SCRAM-SHA-256"
Way = Callable[[TrioClient], Awaitable[object]]


async def send_first_and_final(client: TrioClient, first: str, final: str) -> None:
    """Sends both. `final` may have {given}, the broker's nonce."""
    await handshake(client, SCRAM)
    challenge = bytes((await say(client, first.encode())).auth_bytes).decode()
    given = challenge.partition(",")[0].removeprefix("r=")
    await say(client, final.format(given=given).encode())


async def wants_to_be_bob(client: TrioClient) -> None:
    await handshake(client)
    await say(client, b"bob\0alice\0hers")


async def send_no_scram(client: TrioClient) -> None:
    await handshake(client, SCRAM)
    await say(client, b"hers")


async def request_at_once(client: TrioClient) -> None:
    await client.send((MetadataRequest([]), 9))


ALICE: Final = "n,,n=alice,r=first"
PROOF: Final = b64encode(bytes(32)).decode()
SASL_WAYS: Final[Mapping[str, Way]] = {
    "no such user, user 'carol'": partial(login, mechanism=SCRAM, name="carol"),
    "a wrong password, user 'alice'": partial(login, mechanism=SCRAM, password="his"),
    "no such delegation token, token 'alice'": partial(
        send_first_and_final, first=f"{ALICE},tokenauth=true", final=f"c=biws,r={{given}},p={PROOF}"
    ),
    "its own nonce twice, user 'alice': librdkafka does so before version 2.6.1, use a newer one": partial(
        send_first_and_final, first=ALICE, final=f"c=biws,r=first{{given}},p={PROOF}"
    ),
    "another nonce than it was given, user 'alice'": partial(
        send_first_and_final, first=ALICE, final=f"c=biws,r=other,p={PROOF}"
    ),
    "another header than it began with, user 'alice'": partial(
        send_first_and_final, first=ALICE, final=f"c=eSws,r={{given}},p={PROOF}"
    ),
    "a proof of another mechanism, user 'alice'": partial(
        send_first_and_final, first=ALICE, final="c=biws,r={given},p=AAAA"
    ),
    "a malformed first message: no header": send_no_scram,
    "a malformed final message: no proof, user 'alice'": partial(send_first_and_final, first=ALICE, final="c=biws"),
    "user 'alice' wants to be 'bob'": wants_to_be_bob,
    "the mechanism 'GSSAPI' is not enabled, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 are": partial(
        handshake, mechanism="GSSAPI"
    ),
    "a request of metadata before authentication": request_at_once,
}


async def shake_hands(client: TrioClient, name: str | None) -> None:
    context = client_context(client_settings(name, by="two"))
    encrypted = trio.SSLStream(client.stream, context, server_hostname=HOST)
    with suppress(trio.BrokenResourceError):
        await encrypted.do_handshake()
        await encrypted.receive_some()


TLS_WAYS: Final[Mapping[str, Way]] = {
    "it does not speak TLS, but perhaps Kafka's protocol in plain text: a client of this listener needs "
    "security.protocol=SSL or SASL_SSL": request_at_once,
    "its certificate is not accepted: unable to get local issuer certificate": partial(shake_hands, name="alice"),
    "it has no certificate, and ssl.client.auth=required wants one: give it a keystore": partial(
        shake_hands, name=None
    ),
}


def test_the_page_has_a_row_for_each_of_these_lines() -> None:
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## Logins that fail")
    rows = re.findall(r"^\| `([^`]+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    assert sorted(rows) == sorted([*SASL_WAYS, *TLS_WAYS])


def the_line_about(caplog: pytest.LogCaptureFixture) -> str:
    """Returns the line with the client's address."""
    lines = [
        re.fullmatch(r"closing the connection from 127\.0\.0\.1:\d+ \(client id .+?\): (.+)", it)
        for it in caplog.messages
    ]
    (line,) = [it[1] for it in lines if it]
    return line


@pytest.mark.parametrize("logged", SASL_WAYS)
def test_a_login_that_fails_is_logged_as_the_page_shows(caplog: pytest.LogCaptureFixture, logged: str) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await SASL_WAYS[logged](client)
        assert await client.is_at_end()

    with_sasl_server(scenario)
    assert the_line_about(caplog).endswith(logged)


@pytest.mark.parametrize("logged", TLS_WAYS)
def test_a_handshake_that_fails_is_logged_as_the_page_shows(caplog: pytest.LogCaptureFixture, logged: str) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        context = server_context(server_settings(client_auth="required"))
        kwire.server.securities = {"PLAINTEXT": ListenerSecurity(lambda sock: TlsTransport(sock, context))}
        client = await kwire.connect()
        await TLS_WAYS[logged](client)
        await wait_all_tasks_blocked()
        assert kwire.connections == 0

    with_server(scenario)
    assert the_line_about(caplog).endswith(logged)
