"""PLAIN: accepted clients, refused clients, and the answers to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.security.principal import USER, Principal
from kwire.security.sasl.exchange import Authenticated, AuthenticationFailed
from kwire.security.sasl.plain import MAX_RESPONSE_BYTES, Plain, PlainClient, users_of

USERS = {"alice": "hers", "bob": "his", "": "nobody's", "empty": ""}
PLAIN = Plain(USERS, secret=bytes(32))


def respond(data: bytes) -> Authenticated:
    step = PLAIN.begin().respond(data, now_ms=0)
    assert isinstance(step, Authenticated)
    return step


def test_users_are_the_options_that_begin_with_user() -> None:
    assert users_of({"username": "x", "password": "y", "user_alice": "hers", "user_": "z"}) == {
        "alice": "hers",
        "": "z",
    }


def test_a_user_logs_in_by_name_and_password() -> None:
    assert respond(b"\0alice\0hers") == Authenticated(Principal(USER, "alice"))
    assert respond(b"alice\0alice\0hers") == Authenticated(Principal(USER, "alice"))


@pytest.mark.parametrize(
    ("data", "message", "reason"),
    [
        (b"\0alice\0his", "Authentication failed: Invalid username or password", "a wrong password, user 'alice'"),
        (b"\0carol\0his", "Authentication failed: Invalid username or password", "no such user, user 'carol'"),
        (b"\0ALICE\0hers", "Authentication failed: Invalid username or password", "no such user, user 'ALICE'"),
        (b"bob\0alice\0his", "Authentication failed: Invalid username or password", "a wrong password, user 'alice'"),
        (
            b"bob\0alice\0hers",
            "Authentication failed: Client requested an authorization id that is different from username",
            "user 'alice' wants to be 'bob'",
        ),
        (b"\0\0nobody's", "Authentication failed: username not specified", "no user name"),
        (b"\0empty\0", "Authentication failed: password not specified", "no password"),
        (b"\0carol\0", "Authentication failed: password not specified", "no password"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1", "a malformed response"),
        (b"alice\0hers", "Invalid SASL/PLAIN response: expected 3 tokens, got 2", "a malformed response"),
        (b"\0alice\0hers\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4", "a malformed response"),
        (bytes(1000), "Invalid SASL/PLAIN response: expected 3 tokens, got 4", "a malformed response"),
        (b"\0\xff\0hers", "Invalid SASL/PLAIN response: it is not UTF-8", "a malformed response"),
        (
            b"\0alice\0" + b"x" * MAX_RESPONSE_BYTES,
            "Invalid SASL/PLAIN response: it is too long",
            f"{MAX_RESPONSE_BYTES + 7} bytes, of at most {MAX_RESPONSE_BYTES}",
        ),
    ],
)
def test_others_do_not(data: bytes, message: str, reason: str) -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        respond(data)
    assert (str(failed.value), failed.value.reason) == (message, reason)


def test_no_other_password_will_do() -> None:
    assert not any(PLAIN.accepts(name, str(number)) for name in ("alice", "carol") for number in range(3000))
    assert PLAIN.accepts("alice", "hers")


def test_a_name_in_the_log_is_escaped_and_short() -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        respond(b"\0a\n\x1b[31m" + b"x" * 1000 + b"\0secret")
    assert failed.value.reason.startswith(r"no such user, user 'a\n\x1b[31mxxx")
    assert len(failed.value.reason) < 400
    assert "secret" not in failed.value.reason


@given(st.binary())
def test_garbage_fails(data: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        respond(data)


_TEXT = st.text(min_size=1).filter(lambda it: "\0" not in it)


@given(_TEXT, _TEXT, _TEXT)
def test_the_client_sends_what_the_server_expects(name: str, password: str, other: str) -> None:
    plain = Plain({name: password}, secret=bytes(32))
    client = PlainClient(name, password)
    first = client.respond(None)
    assert first is not None
    step = plain.begin().respond(first, now_ms=0)
    assert isinstance(step, Authenticated)
    assert client.respond(step.data) is None
    assert plain.accepts(name, other) == (other == password)
    assert not plain.accepts(name + other, password)


def test_a_client_does_not_answer_more_questions() -> None:
    client = PlainClient("alice", "hers")
    client.respond(None)
    with pytest.raises(ValueError, match="sends a challenge after"):
        client.respond(b"and your other password?")


def test_passwords_are_in_no_repr() -> None:
    assert "hers" not in repr(PlainClient("alice", "hers"))
    assert "hers" not in repr(PLAIN)
