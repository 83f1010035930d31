"""SCRAM between its two machines, against the examples of the RFCs, and with peers that do not play by the rules."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kwire.security.principal import USER, Principal
from kwire.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge
from kwire.security.sasl.scram import (
    MAX_MESSAGE_BYTES,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Scram,
    ScramClient,
    ScramCredential,
    ScramExchange,
    ScramMechanism,
    credential_of_password,
    parse_client_final,
    salt_from,
    sasl_name,
)

NOW_MS = 1_700_000_000_000
SECRET = bytes(range(32))
SALT = b"a salt"
SCRAM_SHA_1 = ScramMechanism("SCRAM-SHA-1", 0, "sha1", 20)

ALICE = credential_of_password(SCRAM_SHA_256, "alice's", salt=SALT)
TOKEN = attrs.evolve(
    credential_of_password(SCRAM_SHA_256, "hmac", salt=SALT),
    owner=Principal(USER, "bob"),
    expires_at_ms=NOW_MS + 5000,
)


def server(
    users: dict[str, ScramCredential] | None = None,
    *,
    mechanism: ScramMechanism = SCRAM_SHA_256,
    tokens: dict[str, ScramCredential] | None = None,
    nonce: str = "more",
    secret: bytes = SECRET,
) -> ScramExchange:
    users, tokens = users if users is not None else {"alice": ALICE}, tokens or {}

    def find(name: str, *, is_token: bool) -> ScramCredential | None:
        return (tokens if is_token else users).get(name)

    return Scram(mechanism, find, secret=secret, new_nonce=lambda: nonce).begin()


def client(
    name: str = "alice", password: str = "alice's", *, mechanism: ScramMechanism = SCRAM_SHA_256, is_token: bool = False
) -> ScramClient:
    return ScramClient(mechanism, name, password, "first", is_token)


def login(server: ScramExchange, client: ScramClient, *, now_ms: int = NOW_MS) -> Authenticated:
    """Runs both to the end. Raises what either of them raises."""
    data = client.respond(None)
    while True:
        assert data is not None
        step = server.respond(data, now_ms=now_ms)
        data = client.respond(step.data)
        if isinstance(step, Authenticated):
            assert data is None
            return step


# The examples of the RFCs, without a name's owner


def _example(mechanism: ScramMechanism, salt: bytes, nonce: str, more: str, final: str, verified: str) -> None:
    credential = credential_of_password(mechanism, "pencil", salt=salt)
    exchange = server({"user": credential}, mechanism=mechanism, nonce=more)
    asking = ScramClient(mechanism, "user", "pencil", nonce)
    first = asking.respond(None)
    assert first == f"n,,n=user,r={nonce}".encode()
    challenge = exchange.respond(first, now_ms=0)
    assert challenge == Challenge(f"r={nonce}{more},s={b64encode(salt).decode()},i=4096".encode())
    answer = asking.respond(challenge.data)
    assert answer == f"c=biws,r={nonce}{more},p={final}".encode()
    step = exchange.respond(answer, now_ms=0)
    assert step == Authenticated(Principal(USER, "user"), f"v={verified}".encode())
    assert asking.respond(step.data) is None


def test_the_example_of_rfc_5802() -> None:
    _example(
        SCRAM_SHA_1,
        b64decode("QSXCR+Q6sek8bf92"),
        "fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
        "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    )


def test_the_example_of_rfc_7677() -> None:
    _example(
        SCRAM_SHA_256,
        b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="),
        "rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    )


# Names and passwords


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512], ids=lambda it: it.name)
@pytest.mark.parametrize("name", ["alice", "a=b,c", "=2C", "Grüße 漢字", "a b", "n=x,r=y"])
def test_a_user_logs_in_by_name_and_password(mechanism: ScramMechanism, name: str) -> None:
    credential = credential_of_password(mechanism, "pässword, =漢", salt=SALT, iterations=16_384)
    step = login(server({name: credential}, mechanism=mechanism), client(name, "pässword, =漢", mechanism=mechanism))
    assert (step.principal, step.expires_at_ms) == (Principal(USER, name), None)


@given(st.text(min_size=1).filter(lambda it: "\0" not in it), st.text())
def test_any_name_and_any_password_will_do(name: str, password: str) -> None:
    credential = ScramCredential(SALT, *_keys(password), 4096)
    assert login(server({name: credential}), client(name, password)).principal.name == name


def _keys(password: str) -> tuple[bytes, bytes]:
    credential = credential_of_password(SCRAM_SHA_256, password, salt=SALT)
    return credential.stored_key, credential.server_key


def test_passwords_are_not_normalized_because_no_client_does_that() -> None:
    # SASLprep takes both for the same.
    credential = credential_of_password(SCRAM_SHA_256, "\u2168", salt=SALT)
    login(server({"alice": credential}), client(password="\u2168"))
    with pytest.raises(AuthenticationFailed):
        login(server({"alice": credential}), client(password="IX"))


def test_names_in_messages_have_no_commas_and_no_equals_signs() -> None:
    assert sasl_name("a=b,c=2C") == "a=3Db=2Cc=3D2C"


# Who does not come in


def _failure(exchange: ScramExchange, asking: ScramClient) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as failed:
        login(exchange, asking)
    return failed.value


def test_a_wrong_password_and_an_unknown_name_are_answered_alike() -> None:
    wrong = _failure(server(), client(password="bob's"))
    unknown = _failure(server(), client("carol"))
    assert str(wrong) == str(unknown) == ""
    assert wrong.reason == "a wrong password, user 'alice'"
    assert unknown.reason == "no such user, user 'carol'"


@pytest.mark.parametrize("authorization", [b"n,,", b"n,a=x,"])
def test_a_wrong_password_and_an_unknown_name_cost_the_same(
    monkeypatch: pytest.MonkeyPatch, authorization: bytes
) -> None:
    spent: list[int] = []
    digest = hmac.digest

    def counted(key: bytes, message: bytes, algorithm: str) -> bytes:
        spent.append(len(message))
        return digest(key, message, algorithm)

    costs = []
    for name in (b"alice", b"carol"):
        exchange = server()
        with monkeypatch.context() as patch:
            patch.setattr(hmac, "digest", counted)
            challenge = exchange.respond(authorization + b"n=" + name + b",r=first", now_ms=NOW_MS)
            # The signed text has a salt, whose size is the users' own.
            of_challenge = len(challenge.data)
            with pytest.raises(AuthenticationFailed):
                exchange.respond(
                    b"c=" + b64encode(authorization) + b",r=firstmore,p=" + b64encode(bytes(32)), now_ms=NOW_MS
                )
        costs.append([size - of_challenge if size > of_challenge else size for size in spent])
        spent.clear()
    assert costs[0] == costs[1]
    assert len(costs[0]) == 2


def test_an_unknown_name_gets_a_salt_like_others_which_stays_the_same() -> None:
    def first(exchange: ScramExchange, name: str) -> bytes:
        step = exchange.respond(f"n,,n={name},r=x".encode(), now_ms=NOW_MS)
        assert isinstance(step, Challenge)
        return step.data

    carol = first(server(), "carol")
    assert carol == first(server(nonce="more"), "carol")
    assert carol != first(server(), "carolina")
    assert carol != first(server(mechanism=SCRAM_SHA_512), "carol")
    assert carol != first(server(secret=bytes(32)), "carol")
    java_salt = salt_from(bytes(64))
    known = first(server({"carol": attrs.evolve(ALICE, salt=java_salt)}), "carol")
    assert (len(carol), carol[-7:]) == (len(known), known[-7:])


def test_an_unknown_name_stays_out_even_with_the_right_proof() -> None:
    @attrs.frozen
    class Guessed:
        """Credentials as if an attacker had found a password for unknown names."""

        def credential(self, _: str) -> ScramCredential:
            return ALICE

    scram = Scram(SCRAM_SHA_256, lambda _, is_token: None, secret=SECRET, new_nonce=lambda: "more")
    scram.nobody = Guessed()  # type: ignore[assignment]
    assert _failure(scram.begin(), client("carol")).reason == "no such user, user 'carol'"


def test_another_authorization_id_than_the_name_is_refused() -> None:
    for authorization_id, is_fine in (("alice", True), ("bob", False), ("", None)):
        exchange, asking = server(), client()
        first = asking.respond(None)
        assert first is not None
        header = f"n,a={authorization_id},".encode()
        if is_fine is None:
            with pytest.raises(AuthenticationFailed) as failed:
                exchange.respond(header + first[3:], now_ms=NOW_MS)
            assert "malformed name" in failed.value.reason
            continue
        challenge = exchange.respond(header + first[3:], now_ms=NOW_MS)
        final = _final(challenge.data, header)
        if is_fine:
            assert isinstance(exchange.respond(final, now_ms=NOW_MS), Authenticated)
        else:
            with pytest.raises(AuthenticationFailed, match="different from username") as failed:
                exchange.respond(final, now_ms=NOW_MS)
            assert failed.value.reason == "user 'alice' wants to be 'bob'"


def _final(challenge: bytes, header: bytes, *, bare: bytes = b"n=alice,r=first", nonce: bytes = b"firstmore") -> bytes:
    """Returns alice's last message, with the right proof for what is in it."""
    without_proof = b"c=" + b64encode(header) + b",r=" + nonce
    signed = b",".join((bare, challenge, without_proof))
    key = SCRAM_SHA_256.client_key(SCRAM_SHA_256.salted_password("alice's", SALT, 4096))
    signature = SCRAM_SHA_256.hmac(SCRAM_SHA_256.hash(key), signed)
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    return without_proof + b",p=" + b64encode(proof)


def test_the_nonce_that_old_librdkafka_sends_is_refused_and_the_log_names_its_sender() -> None:
    exchange = server()
    challenge = exchange.respond(b"n,,n=alice,r=first", now_ms=NOW_MS)
    with pytest.raises(AuthenticationFailed) as failed:
        exchange.respond(_final(challenge.data, b"n,,", nonce=b"firstfirstmore"), now_ms=NOW_MS)
    assert str(failed.value) == ""
    hint = "librdkafka does so before version 2.6.1, use a newer one"
    assert failed.value.reason == f"its own nonce twice, user 'alice': {hint}"


@pytest.mark.parametrize(
    ("header", "nonce", "reason"),
    [
        (b"y,,", b"firstmore", "another header than it began with"),
        (b"p=tls-unique,,", b"firstmore", "another header than it began with"),
        (b"", b"firstmore", "another header than it began with"),
        (b"n,,", b"first", "another nonce than it was given"),
        (b"n,,", b"firstmoreandmore", "another nonce than it was given"),
        (b"n,,", b"other", "another nonce than it was given"),
    ],
)
def test_a_final_message_has_the_header_and_the_nonce_that_were_agreed(
    header: bytes, nonce: bytes, reason: str
) -> None:
    exchange = server()
    challenge = exchange.respond(b"n,,n=alice,r=first", now_ms=NOW_MS)
    with pytest.raises(AuthenticationFailed) as failed:
        exchange.respond(_final(challenge.data, header, nonce=nonce), now_ms=NOW_MS)
    assert failed.value.reason == f"{reason}, user 'alice'"


def test_a_client_that_has_channel_binding_may_say_so() -> None:
    exchange = server()
    challenge = exchange.respond(b"y,,n=alice,r=first", now_ms=NOW_MS)
    assert isinstance(exchange.respond(_final(challenge.data, b"y,,"), now_ms=NOW_MS), Authenticated)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"", "no header"),
        (b"\xff", "it is not UTF-8"),
        (b"n,,n=a\0,r=x", "it has a NUL"),
        (b"n,,n=a,r=" + b"x" * MAX_MESSAGE_BYTES, f"{MAX_MESSAGE_BYTES + 9} bytes, of at most {MAX_MESSAGE_BYTES}"),
        (b"n=alice,r=x", "no header"),
        (b"x,,n=alice,r=x", "no flag about channel binding"),
        (b",,n=alice,r=x", "no flag about channel binding"),
        (b"p=tls-unique,,n=alice,r=x", "channel binding is wanted, which there is not"),
        (b"n,b=x,n=alice,r=x", "no header"),
        (b"n,,m=x,n=alice,r=x", "an extension that is mandatory, m="),
        (b"n,,a=alice,r=x", "no name"),
        (b"n,,n=,r=x", "a malformed name"),
        (b"n,,n=a=b,r=x", "a malformed name"),
        (b"n,,n=a=2c,r=x", "a malformed name"),
        (b"n,,n=alice,s=x", "no nonce"),
        (b"n,,n=alice,r=", "a malformed nonce"),
        (b"n,,n=alice,r=\xc3\xa4", "a malformed nonce"),
        (b"n,,n=alice,r=" + b"x" * 1025, "a malformed nonce"),
        (b"n,,n=alice,r=x,", "a malformed extension"),
        (b"n,,n=alice,r=x,1=2", "a malformed extension"),
    ],
)
def test_a_malformed_first_message_is_described_in_the_log_only(first: bytes, reason: str) -> None:
    exchange = server()
    with pytest.raises(AuthenticationFailed, match=r"^$") as failed:
        exchange.respond(first, now_ms=NOW_MS)
    assert failed.value.reason == f"a malformed first message: {reason}"
    with pytest.raises(AuthenticationFailed):
        exchange.respond(b"n,,n=alice,r=first", now_ms=NOW_MS)


def test_a_first_message_without_a_nonce_is_malformed() -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        server().respond(b"n,,n=alice", now_ms=NOW_MS)
    assert failed.value.reason == "a malformed first message: no nonce"


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (b"", "no proof"),
        (b"c=biws,r=firstmore", "no proof"),
        (b"r=firstmore,c=biws,p=AAAA", "no proof"),
        (b"x=biws,r=firstmore,p=AAAA", "no proof"),
        (b"c=biws,x=firstmore,p=AAAA", "no proof"),
        (b"c=biws,r=firstmore,p=A", "malformed base64"),
        (b"c=biws,r=firstmore,p=AAAA=AAAA", "malformed base64"),
        (b"c=biws,r=firstmore,p=AA\nAA", "malformed base64"),
        (b"c=b i,r=firstmore,p=AAAA", "malformed base64"),
        (b"c=biws,r=firstmore,x,p=AAAA", "a malformed extension"),
        (b"\xff", "it is not UTF-8"),
    ],
)
def test_a_malformed_final_message_fails(final: bytes, reason: str) -> None:
    exchange = server()
    exchange.respond(b"n,,n=alice,r=first", now_ms=NOW_MS)
    with pytest.raises(AuthenticationFailed, match=r"^$") as failed:
        exchange.respond(final, now_ms=NOW_MS)
    assert failed.value.reason == f"a malformed final message: {reason}, user 'alice'"


def test_a_proof_of_another_length_fails() -> None:
    exchange = server()
    exchange.respond(b"n,,n=alice,r=first", now_ms=NOW_MS)
    with pytest.raises(AuthenticationFailed, match=r"^$"):
        exchange.respond(b"c=biws,r=firstmore,p=", now_ms=NOW_MS)


def test_nothing_follows_the_end() -> None:
    exchange = server()
    challenge = exchange.respond(b"n,,n=alice,r=first", now_ms=NOW_MS)
    final = _final(challenge.data, b"n,,")
    assert isinstance(exchange.respond(final, now_ms=NOW_MS), Authenticated)
    for data in (final, b"n,,n=alice,r=first"):
        with pytest.raises(AuthenticationFailed) as failed:
            exchange.respond(data, now_ms=NOW_MS)
        assert failed.value.reason == "a message after the last one"


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_garbage_fails(first: bytes, final: bytes) -> None:
    for begun in (first, b"n,,n=alice,r=" + first, b"n,,n=alice,r=first"):
        with pytest.raises(AuthenticationFailed):
            _both(begun, final)


def _both(first: bytes, final: bytes) -> None:
    exchange = server()
    exchange.respond(first, now_ms=NOW_MS)
    exchange.respond(final, now_ms=NOW_MS)


@given(st.integers(0, 100), st.integers(0, 255))
@example(63, ord("N"))
def test_one_wrong_byte_in_the_last_message_keeps_a_user_out(position: int, byte: int) -> None:
    exchange = server()
    challenge = exchange.respond(b"n,,n=alice,r=first", now_ms=NOW_MS)
    final = bytearray(_final(challenge.data, b"n,,"))
    right = parse_client_final(bytes(final))
    final[position % len(final)] = byte
    # Two bits of the proof's last digit mean nothing (RFC 4648, 3.5). Java's decoder ignores them, too.
    try:
        is_right = parse_client_final(bytes(final)) == right
    except ValueError:
        is_right = False
    if is_right:
        assert isinstance(exchange.respond(bytes(final), now_ms=NOW_MS), Authenticated)
    else:
        with pytest.raises(AuthenticationFailed):
            exchange.respond(bytes(final), now_ms=NOW_MS)


# Delegation tokens


def test_a_token_authenticates_its_owner_until_it_expires() -> None:
    step = login(server(tokens={"id": TOKEN}), client("id", "hmac", is_token=True))
    assert step.principal == Principal(USER, "bob")
    assert step.principal.token_authenticated
    assert step.expires_at_ms == NOW_MS + 5000
    failed = server(tokens={"id": TOKEN})
    with pytest.raises(AuthenticationFailed) as expired:
        login(failed, client("id", "hmac", is_token=True), now_ms=NOW_MS + 5000)
    assert expired.value.reason == "its credential has expired, token 'id'"


def test_users_are_no_tokens_and_tokens_are_no_users() -> None:
    assert _failure(server(), client(is_token=True)).reason == "no such delegation token, token 'alice'"
    assert _failure(server(tokens={"id": TOKEN}), client("id", "hmac")).reason == "no such user, user 'id'"


def test_a_user_is_not_token_authenticated() -> None:
    assert not login(server(), client()).principal.token_authenticated


# A broker that is none


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"r=firstmore,s=YSBzYWx0,i=4095", "requires 4095 iterations"),
        (b"r=firstmore,s=YSBzYWx0,i=16385", "requires 16385 iterations"),
        (b"r=firstmore,s=YSBzYWx0,i=2147483648", "is no SCRAM"),
        (b"r=firstmore,s=YSBzYWx0,i=" + b"9" * 5000, "is no SCRAM"),
        (b"r=firstmore,s=YSBzYWx0,i=-1", "is no SCRAM"),
        (b"r=other,s=YSBzYWx0,i=4096", "does not begin with ours"),
        (b"r=first,s=YSBzYWx0,i=4096", "does not begin with ours"),
        (b"r=firstmore,s=====,i=4096", "malformed base64"),
        (b"m=x,r=firstmore,s=YSBzYWx0,i=4096", "is no SCRAM"),
        (b"\xff", "not UTF-8"),
        (b"", "is no SCRAM"),
    ],
)
def test_a_client_does_not_continue_with_a_broker_that_requests_the_wrong_things(challenge: bytes, why: str) -> None:
    asking = client()
    asking.respond(None)
    with pytest.raises(ValueError, match=why):
        asking.respond(challenge)


@pytest.mark.parametrize(
    ("final", "why"),
    [
        (b"v=" + b64encode(bytes(32)), "does not know the password itself"),
        (b"v=", "does not know the password itself"),
        (b"v=?", "malformed base64"),
        (b"e=other-error", "it refuses: 'other-error'"),
        (b"", "is no SCRAM"),
    ],
)
def test_a_client_requires_proof_that_the_broker_has_the_password(final: bytes, why: str) -> None:
    asking = client()
    asking.respond(None)
    asking.respond(b"r=firstmore,s=YSBzYWx0,i=4096")
    with pytest.raises(ValueError, match=why):
        asking.respond(final)


def test_a_client_sends_nothing_after_the_end() -> None:
    asking = client()
    login(server(), asking)
    with pytest.raises(ValueError, match="after the last message"):
        asking.respond(b"")


# Credentials


@pytest.mark.parametrize("iterations", [-1, 0, 4095, 16_385, 1 << 31])
def test_credentials_have_as_many_iterations_as_kafka_allows(iterations: int) -> None:
    with pytest.raises(ValueError, match="give a number from 4096 to 16384"):
        credential_of_password(SCRAM_SHA_256, "x", salt=SALT, iterations=iterations)


def test_keys_and_passwords_are_in_no_repr() -> None:
    assert "salt" not in repr(ALICE)
    assert "alice's" not in repr(client())


def test_salts_are_text_as_in_java() -> None:
    assert salt_from(bytes(32)) == b"0" * 26
    assert salt_from(b"\xff" * 64) != salt_from(b"\xfe" * 64)
    assert salt_from(SECRET).isalnum()
