"""The mechanism OAUTHBEARER: the bytes of both sides."""

from __future__ import annotations

from contextlib import suppress

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.security.oauth.token import INSUFFICIENT_SCOPE, AcceptedToken, TokenRejected
from kwire.security.principal import Principal
from kwire.security.sasl.client import ClientExchange
from kwire.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge
from kwire.security.sasl.oauthbearer import MAX_MESSAGE_BYTES, FirstMessage, OAuthBearer, OAuthBearerClient

NOW_MS = 1000


@attrs.define
class Names:
    """Accepts the token that is named like its principal; `seen` is what was presented."""

    seen: list[str] = attrs.Factory(list)

    def validate(self, token: str, *, now_ms: int) -> AcceptedToken:
        self.seen.append(token)
        if token == "bad":
            raise TokenRejected("it is bad")
        if token == "poor":
            raise TokenRejected("it lacks something", status=INSUFFICIENT_SCOPE, scope="[read]")
        return AcceptedToken(token, now_ms + 5)


def answer(data: bytes) -> Challenge | Authenticated:
    return OAuthBearer(Names()).begin().respond(data, now_ms=NOW_MS)


def failure(data: bytes) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as caught:
        answer(data)
    return caught.value


def test_a_token_that_is_accepted_ends_the_exchange() -> None:
    assert answer(b"n,,\x01auth=Bearer alice\x01\x01") == Authenticated(Principal("User", "alice"), b"", NOW_MS + 5)


def test_a_rejected_token_is_answered_with_json_and_then_fails() -> None:
    exchange = OAuthBearer(Names()).begin()
    assert exchange.respond(b"n,,\x01auth=Bearer bad\x01\x01", now_ms=0) == Challenge(b'{"status":"invalid_token"}')
    with pytest.raises(AuthenticationFailed, match=r'^{"status":"invalid_token"}$') as caught:
        exchange.respond(b"\x01", now_ms=0)
    assert caught.value.reason == "it is bad"
    assert answer(b"n,,\x01auth=Bearer poor\x01\x01") == Challenge(b'{"status":"insufficient_scope","scope":"[read]"}')


def test_after_a_rejection_no_other_token_is_looked_at() -> None:
    names = Names()
    exchange = OAuthBearer(names).begin()
    exchange.respond(b"n,,\x01auth=Bearer bad\x01\x01", now_ms=0)
    for _ in range(3):
        with pytest.raises(AuthenticationFailed):
            exchange.respond(b"n,,\x01auth=Bearer alice\x01\x01", now_ms=0)
    assert names.seen == ["bad"]


def test_the_name_that_is_requested_must_be_the_tokens() -> None:
    assert isinstance(answer(b"n,a=alice,\x01auth=Bearer alice\x01\x01"), Authenticated)
    error = failure(b"n,a=root,\x01auth=Bearer alice\x01\x01")
    assert "not the principal of the token" in str(error)
    assert "root" in error.reason
    assert "root" not in str(error)


def test_extensions_are_accepted_if_they_are_well_formed() -> None:
    data = b"n,,\x01logicalCluster=lkc-1\x01auth=bEaReR   alice\x01trace=a=b \t\r\n\x01\x01"
    message = FirstMessage.parse(data)
    assert message.extensions == {"logicalCluster": "lkc-1", "trace": "a=b \t\r\n"}
    assert isinstance(answer(data), Authenticated)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\x01",
        b"n,,",
        b"n,,\x01",
        b"n,,\x01\x01",
        b"n,,\x01\x01\x01",
        b"n,,\x01auth=Bearer alice",
        b"n,,\x01auth=Bearer alice\x01",
        b"n,,\x01auth=Bearer alice\x01\x01\x01",
        b"n,,\x01auth=Bearer alice\x01\x01x",
        b"n,\x01auth=Bearer alice\x01\x01",
        b"n,,,\x01auth=Bearer alice\x01\x01",
        b"n,,x\x01auth=Bearer alice\x01\x01",
        b"y,,\x01auth=Bearer alice\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer alice\x01\x01",
        b"n,alice,\x01auth=Bearer alice\x01\x01",
        b"n,a=,\x01auth=Bearer alice\x01\x01",
        b"n,a=al=ice,\x01auth=Bearer alice\x01\x01",
        b"n,a=al=2cice,\x01auth=Bearer alice\x01\x01",
        b"n,a=\x00,\x01auth=Bearer alice\x01\x01",
        b"n,,\x01auth=Basic alice\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Beareralice\x01\x01",
        b"n,,\x01auth=Bearer al ice\x01\x01",
        b"n,,\x01auth=Bearer ali=ce\x01\x01",
        b"n,,\x01auth=Bearer \xc3\xa9\x01\x01",
        b"n,,\x01auth=\x01\x01",
        b"n,,\x01auth\x01\x01",
        b"n,,\x01Auth=Bearer alice\x01\x01",
        b"n,,\x01other=Bearer alice\x01\x01",
        b"n,,\x01auth=Bearer bob\x01auth=Bearer alice\x01\x01",
        b"n,,\x01auth=Bearer alice\x01k3y=v\x01\x01",
        b"n,,\x01auth=Bearer alice\x01key=\x01\x01",
        b"n,,\x01auth=Bearer alice\x01key=\x7f\x01\x01",
        b"n,,\x01auth=Bearer alice\x01key=\xff\x01\x01",
        b"n,,\x01auth=Bearer alice\x01key=1\x01key=2\x01\x01",
        b"n,,\x01auth=Bearer alice\x01\x01key=1\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * MAX_MESSAGE_BYTES + b"\x01\x01",
    ],
)
def test_a_message_that_is_malformed_fails_and_presents_no_token(data: bytes) -> None:
    names = Names()
    exchange = OAuthBearer(names).begin()
    for _ in range(2):
        with pytest.raises(AuthenticationFailed, match="invalid credentials with SASL mechanism OAUTHBEARER"):
            exchange.respond(data, now_ms=0)
    assert names.seen == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"n,,\x01auth=Bearer " + b"a" * MAX_MESSAGE_BYTES + b"\x01\x01", "has 131090 bytes, more than 131072"),
        (b"n,,\x01auth=Bearer \xff\x01\x01", "the first message is not in UTF-8"),
        (b"y,,\x01auth=Bearer alice\x01\x01", "does not begin with n,a=NAME,"),
        (b"n,alice,\x01auth=Bearer alice\x01\x01", "a malformed authorization id"),
        (b"n,,\x01auth=Bearer alice\x01", "does not end with two bytes 1"),
        (b"n,,", "does not end with two bytes 1"),
        (b"n,,\x01auth=Bearer alice\x01key=\x01\x01", "a malformed pair, or one twice"),
        (b"n,,\x01key=value\x01\x01", "has no auth"),
        (b"n,,\x01auth=Basic alice\x01\x01", "something else than a bearer token"),
    ],
)
def test_what_is_malformed_is_described_in_the_log_only(data: bytes, reason: str) -> None:
    error = failure(data)
    assert reason in error.reason
    assert "alice" not in error.reason
    assert str(error) == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
    )


@given(st.lists(st.binary(max_size=60) | st.sampled_from([b"n,,\x01auth=Bearer bad\x01\x01", b"\x01"]), max_size=4))
def test_no_bytes_make_the_exchange_fail_otherwise(messages: list[bytes]) -> None:
    exchange = OAuthBearer(Names()).begin()
    for data in messages:
        with suppress(AuthenticationFailed):
            assert not isinstance(exchange.respond(data, now_ms=0), Authenticated)


NAME = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01"), max_size=12)
TOKEN = st.from_regex(r"[-_~+/.a-zA-Z0-9]+=*", fullmatch=True)
EXTENSIONS = st.dictionaries(
    st.from_regex("[A-Za-z]{1,8}", fullmatch=True).filter(lambda key: key != "auth"),
    st.from_regex("[!-~ \t\r\n]{1,8}", fullmatch=True),
)


@given(TOKEN, NAME, EXTENSIONS)
def test_what_the_client_sends_is_what_the_server_reads(token: str, name: str, extensions: dict[str, str]) -> None:
    message = FirstMessage(token, name, extensions)
    assert FirstMessage.parse(message.encode()) == message


def test_the_bytes_of_the_client() -> None:
    client = OAuthBearerClient(FirstMessage("abc.def.ghi", "a,b=c", {"key": "value"}))
    assert client.respond(None) == b"n,a=a=2Cb=3Dc,\x01auth=Bearer abc.def.ghi\x01key=value\x01\x01"
    assert OAuthBearerClient(FirstMessage("t")).respond(None) == b"n,,\x01auth=Bearer t\x01\x01"


def test_a_client_whose_token_is_rejected_ends_the_exchange_in_good_order() -> None:
    client, exchange = OAuthBearerClient(FirstMessage("bad")), OAuthBearer(Names()).begin()
    as_all_clients_have_it: ClientExchange = client
    assert as_all_clients_have_it.mechanism == "OAUTHBEARER"
    challenge = exchange.respond(client.respond(None) or b"", now_ms=0)
    last = client.respond(challenge.data)
    assert client.rejection == '{"status":"invalid_token"}'
    assert last == b"\x01"
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        exchange.respond(last, now_ms=0)
    with pytest.raises(ValueError, match="continues after the last message"):
        client.respond(challenge.data)


def test_a_client_whose_token_is_accepted_is_through() -> None:
    client = OAuthBearerClient(FirstMessage("alice"))
    accepted = OAuthBearer(Names()).begin().respond(client.respond(None) or b"", now_ms=0)
    assert client.respond(accepted.data) is None
    assert client.rejection is None


@pytest.mark.parametrize(
    "message",
    [
        FirstMessage(""),
        FirstMessage("a b"),
        FirstMessage("a\x01b"),
        FirstMessage("t", "a\x01b"),
        FirstMessage("t", "a\x00b"),
        FirstMessage("t", extensions={"auth": "x"}),
        FirstMessage("t", extensions={"k3y": "x"}),
        FirstMessage("t", extensions={"key": ""}),
        FirstMessage("t", extensions={"key": "a\x01auth=Bearer other"}),
    ],
)
def test_a_client_sends_nothing_that_could_be_read_as_something_else(message: FirstMessage) -> None:
    with pytest.raises(ValueError, match="token|sent|control"):
        message.encode()


def test_tokens_are_not_shown() -> None:
    assert "alice" not in repr(FirstMessage("alice"))
    assert "alice" not in repr(OAuthBearerClient(FirstMessage("alice")))
