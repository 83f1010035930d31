"""The session of a connection: its order, its lifetime, and reauthentication."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.security.principal import USER, Principal
from kwire.security.sasl.exchange import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    IllegalSaslState,
    Known,
    SaslSession,
    UnsupportedMechanism,
)

NOW_MS = 1_700_000_000_000


@attrs.define
class Parrot:
    """A mechanism of two steps: it repeats the first, and takes the second for a name; an empty one is refused."""

    name: str
    expires_at_ms: int | None = None

    def begin(self) -> ParrotExchange:
        return ParrotExchange(self.expires_at_ms)


@attrs.define
class ParrotExchange:
    expires_at_ms: int | None
    has_begun: bool = False

    def respond(self, data: bytes, *, now_ms: int) -> Challenge | Authenticated:
        assert now_ms == NOW_MS
        if not self.has_begun:
            self.has_begun = True
            return Challenge(data)
        if not data:
            raise AuthenticationFailed("", "no name")
        return Authenticated(Principal(USER, data.decode()), b"hello", self.expires_at_ms)


def session(*, max_reauth_ms: int = 0, expires_at_ms: int | None = None) -> SaslSession:
    mechanisms = {name: Parrot(name, expires_at_ms) for name in ("GREY", "GREEN")}
    return SaslSession(mechanisms, dict.fromkeys(mechanisms, max_reauth_ms))


def login(session: SaslSession, name: str = "alice", *, mechanism: str = "GREY", monotonic_ms: int = 0) -> Known:
    session.handshake(mechanism, version=1, monotonic_ms=monotonic_ms)
    assert session.respond(b"hi", now_ms=NOW_MS) == Challenge(b"hi")
    known = session.respond(name.encode(), now_ms=NOW_MS)
    assert isinstance(known, Known)
    return known


def test_a_client_is_known_when_the_exchange_is_over() -> None:
    begun = session()
    assert login(begun) == Known(Principal(USER, "alice"), b"hello", None)
    assert (begun.principal, begun.authenticated_by) == (Principal(USER, "alice"), "GREY")


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_in_ms", "lifetime_ms"),
    [(0, None, None), (5000, None, 5000), (0, 3000, 3000), (5000, 3000, 3000), (2000, 3000, 2000), (0, -1, 0)],
)
def test_an_authentication_lasts_as_long_as_configuration_and_credentials_allow(
    max_reauth_ms: int, expires_in_ms: int | None, lifetime_ms: int | None
) -> None:
    expires_at_ms = None if expires_in_ms is None else NOW_MS + expires_in_ms
    assert login(session(max_reauth_ms=max_reauth_ms, expires_at_ms=expires_at_ms)).lifetime_ms == lifetime_ms


def test_a_mechanism_that_is_not_enabled_is_refused() -> None:
    with pytest.raises(UnsupportedMechanism):
        session().handshake("BLUE", version=1, monotonic_ms=0)


def test_bytes_before_a_mechanism_is_named_close_the_connection() -> None:
    with pytest.raises(IllegalSaslState, match="before SaslHandshake") as error:
        session().respond(b"", now_ms=NOW_MS)
    assert error.value.closes


def test_a_second_handshake_during_an_exchange_closes_the_connection() -> None:
    begun = session()
    begun.handshake("GREY", version=1, monotonic_ms=0)
    with pytest.raises(IllegalSaslState) as error:
        begun.handshake("GREY", version=1, monotonic_ms=0)
    assert error.value.closes


def test_the_versions_are_sent_once_before_a_handshake() -> None:
    connected = session()
    connected.check_versions()
    connected.check_versions()  # in another version, if the broker does not have the first one
    connected.versions_are_known()
    with pytest.raises(IllegalSaslState, match="ApiVersions twice before SaslHandshake") as error:
        connected.check_versions()
    assert error.value.closes
    assert not error.value.is_answered
    login(connected)
    connected.check_versions()


def test_the_versions_are_refused_during_an_exchange() -> None:
    begun = session()
    begun.handshake("GREY", version=1, monotonic_ms=0)
    with pytest.raises(IllegalSaslState, match="ApiVersions during an authentication") as error:
        begun.check_versions()
    assert error.value.closes
    assert error.value.is_answered


def test_bytes_after_the_exchange_are_refused_and_the_connection_stays_open() -> None:
    begun = session()
    login(begun)
    with pytest.raises(IllegalSaslState, match="received after successful authentication") as error:
        begun.respond(b"", now_ms=NOW_MS)
    assert not error.value.closes


def test_a_failure_is_sent_in_kafkas_words_and_logged_with_its_reason() -> None:
    begun = session()
    begun.handshake("GREY", version=1, monotonic_ms=0)
    begun.respond(b"", now_ms=NOW_MS)
    with pytest.raises(AuthenticationFailed) as failed:
        begun.respond(b"", now_ms=NOW_MS)
    assert str(failed.value) == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism GREY"
    )
    assert failed.value.reason == "authentication with GREY failed: no name"


# Again


def test_whoever_is_known_for_good_cannot_authenticate_again() -> None:
    begun = session()
    login(begun)
    with pytest.raises(IllegalSaslState) as error:
        login(begun)
    assert not error.value.closes


def test_whoever_is_known_for_a_time_authenticates_again() -> None:
    begun = session(max_reauth_ms=5000)
    for monotonic_ms in (0, 0, 1000, 7000):
        assert login(begun, monotonic_ms=monotonic_ms).lifetime_ms == 5000


def test_authenticating_again_within_a_second_is_refused() -> None:
    begun = session(max_reauth_ms=5000)
    login(begun)
    login(begun, monotonic_ms=500)
    with pytest.raises(IllegalSaslState) as error:
        login(begun, monotonic_ms=1499)
    assert not error.value.closes
    login(begun, monotonic_ms=1500)


def test_another_principal_is_refused() -> None:
    begun = session(max_reauth_ms=5000)
    login(begun)
    with pytest.raises(AuthenticationFailed) as failed:
        login(begun, "bob")
    assert str(failed.value) == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert failed.value.reason == "re-authentication with GREY failed: another principal than before"
    assert begun.principal == Principal(USER, "alice")


def test_another_mechanism_is_refused_once_it_has_begun() -> None:
    begun = session(max_reauth_ms=5000)
    login(begun)
    begun.handshake("GREEN", version=1, monotonic_ms=0)
    with pytest.raises(AuthenticationFailed) as failed:
        begun.respond(b"", now_ms=NOW_MS)
    assert str(failed.value) == (
        "SASL mechanism 'GREEN' requested by client is not supported for re-authentication of mechanism 'GREY'"
    )


def test_a_failure_to_log_in_again_is_reported_as_such() -> None:
    begun = session(max_reauth_ms=5000)
    login(begun)
    with pytest.raises(AuthenticationFailed, match="Authentication failed during re-authentication due to"):
        login(begun, "")


def test_bytes_without_requests_follow_the_oldest_handshake_only() -> None:
    begun = session(max_reauth_ms=5000)
    begun.handshake("GREY", version=0, monotonic_ms=0)
    takes_tokens = [begun.takes_tokens]
    begun.respond(b"", now_ms=NOW_MS)
    begun.respond(b"alice", now_ms=NOW_MS)
    assert [*takes_tokens, begun.takes_tokens] == [True, False]
    begun.handshake("GREY", version=0, monotonic_ms=0)
    assert begun.takes_tokens


@given(st.lists(st.tuples(st.sampled_from(["GREY", "GREEN", "BLUE", "say"]), st.binary(max_size=2)), max_size=12))
def test_nobody_is_known_without_a_whole_exchange(steps: list[tuple[str, bytes]]) -> None:
    begun = session(max_reauth_ms=5000)
    tokens: list[bytes] = []
    for what, data in steps:
        try:
            if what == "say":
                step = begun.respond(data, now_ms=NOW_MS)
                tokens.append(data)
                if isinstance(step, Known):
                    assert len(tokens) == 2
                    assert step.principal.name == tokens[-1].decode()
            else:
                begun.handshake(what, version=1, monotonic_ms=0)
                tokens = []
        except IllegalSaslState as error:
            if error.closes:
                return
        except (AuthenticationFailed, UnsupportedMechanism, UnicodeDecodeError):
            return
