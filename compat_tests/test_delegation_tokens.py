"""The APIs of delegation tokens (KIP-48, KIP-373), field by field: owners, requesters and every refusal.

Kafka's own tool is in test_secured_tools.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kwire_protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kwire_protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kwire_protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest

from testkit.basics.waiting import eventually
from testkit.raw.client import RawClient
from testkit.security.secured import PASSWORDS, PLAIN, Secured

E = ErrorCode
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOBODYS = b"x" * 64
"""The secret of no token."""


@attrs.frozen
class User:
    """A connection of a user who has logged in, or of User:ANONYMOUS."""

    client: RawClient

    def create(self, *, owner: str = "", renewers: tuple[str, ...] = (), life_ms: int = -1, version: int = 3) -> Any:
        request = CreateDelegationTokenRequest(
            "User" if owner else "",
            owner,
            [CreatableRenewers(*it.split(":")) for it in renewers],
            life_ms,
        )
        response: CreateDelegationTokenResponse = self.client.call(request, version)
        if not response.error_code:
            eventually(lambda: response.token_id in self.sees(), "the token is known")
        return response

    def renew(self, hmac: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
        response = self.client.call(RenewDelegationTokenRequest(hmac, period_ms), version)
        return response.error_code, response.expiry_timestamp_ms

    def expire(self, hmac: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
        response = self.client.call(ExpireDelegationTokenRequest(hmac, period_ms), version)
        return response.error_code, response.expiry_timestamp_ms

    def describe(self, *owners: str, version: int = 3) -> Any:
        """Describes the tokens of these owners; without owners, all that it may see."""
        wanted = [DescribeDelegationTokenOwner("User", it) for it in owners] or None
        return self.client.call(DescribeDelegationTokenRequest(wanted), version)

    def sees(self, *owners: str) -> set[str]:
        response = self.describe(*owners)
        assert response.error_code == 0
        return {it.token_id for it in response.tokens}

    def expiry_timestamp_ms(self, token_id: str) -> int:
        (token,) = [it for it in self.describe().tokens if it.token_id == token_id]
        return int(token.expiry_timestamp)


@pytest.fixture
def user(secured: Secured) -> Iterator[Callable[[str], User]]:
    """Connects as a user; "" is User:ANONYMOUS."""
    with ExitStack() as connected:

        def connect(name: str) -> User:
            address = secured.address("SASL_PLAINTEXT" if name else "PLAINTEXT")
            client = connected.enter_context(RawClient(address))
            if name:
                assert client.call(SaslHandshakeRequest(PLAIN), 1).error_code == 0
                message = f"\0{name}\0{PASSWORDS[name]}".encode()
                assert client.call(SaslAuthenticateRequest(message), 2).error_code == 0
            return User(client)

        yield connect


def test_a_token_in_every_version(user: Callable[[str], User]) -> None:
    alice = user("alice")
    for version in (1, 2, 3):
        made = alice.create(renewers=("User:bob",), version=version)
        assert (made.error_code, made.principal_type, made.principal_name) == (0, "User", "alice")
        requester = (made.token_requester_principal_type, made.token_requester_principal_name)
        assert requester == (("User", "alice") if version == 3 else ("", ""))
        assert made.expiry_timestamp_ms - made.issue_timestamp_ms == DAY_MS
        assert made.max_timestamp_ms - made.issue_timestamp_ms == 7 * DAY_MS
        assert (len(made.token_id), len(made.hmac)) == (22, 64)
        (seen,) = [it for it in alice.describe("alice", version=version).tokens if it.token_id == made.token_id]
        assert (seen.hmac, seen.expiry_timestamp) == (made.hmac, made.expiry_timestamp_ms)
        assert [(it.principal_type, it.principal_name) for it in seen.renewers] == [("User", "bob")]
        assert alice.renew(made.hmac, HOUR_MS, min(version, 2))[0] == 0
        assert alice.expire(made.hmac, version=min(version, 2))[0] == 0
        eventually(lambda made=made: made.token_id not in alice.sees("alice"), "it is gone")  # type: ignore[misc]


def test_a_requested_lifetime_ends_a_token_sooner(user: Callable[[str], User]) -> None:
    alice = user("alice")
    made = alice.create(life_ms=HOUR_MS)
    assert made.expiry_timestamp_ms == made.max_timestamp_ms == made.issue_timestamp_ms + HOUR_MS
    assert alice.renew(made.hmac) == (0, made.max_timestamp_ms)
    assert alice.expire(made.hmac, 2 * HOUR_MS) == (0, made.max_timestamp_ms)
    assert alice.expire(made.hmac)[0] == 0


def test_who_may_renew_and_end_a_token(user: Callable[[str], User]) -> None:
    alice, bob, admin = user("alice"), user("bob"), user("admin")
    made = alice.create(renewers=("User:bob",))
    eventually(lambda: bob.renew(made.hmac, HOUR_MS)[0] == 0, "bob renews it")
    assert admin.renew(made.hmac) == (E.DELEGATION_TOKEN_OWNER_MISMATCH, 0), "not even a super user"
    assert admin.expire(made.hmac) == (E.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert alice.renew(NOBODYS) == (E.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert alice.expire(NOBODYS) == (E.DELEGATION_TOKEN_NOT_FOUND, 0)
    error_code, expiry_timestamp_ms = bob.expire(made.hmac, 0)
    assert error_code == 0
    # A renewal that comes too early succeeds, and the token lives on: in its last millisecond, and on Kafka also
    # before the controller's cache has the new time.
    eventually(lambda: alice.expiry_timestamp_ms(made.token_id) == expiry_timestamp_ms, "its end is known")
    eventually(lambda: time.time() * 1000 >= expiry_timestamp_ms + 1, "its last millisecond is over")
    eventually(lambda: alice.renew(made.hmac) == (E.DELEGATION_TOKEN_EXPIRED, 0), "it has expired")
    assert alice.expire(made.hmac, 0) == (E.DELEGATION_TOKEN_EXPIRED, 0)
    assert alice.expire(made.hmac)[0] == 0, "but it can be ended"


def test_renewers_are_users(user: Callable[[str], User]) -> None:
    refused = user("alice").create(renewers=("User:bob", "Group:staff"))
    assert refused.error_code == E.INVALID_PRINCIPAL_TYPE
    assert (refused.issue_timestamp_ms, refused.expiry_timestamp_ms, refused.max_timestamp_ms) == (-1, -1, -1)
    assert (refused.token_id, refused.hmac, refused.principal_name) == ("", b"", "alice")


def test_tokens_of_others_need_a_permission(user: Callable[[str], User]) -> None:
    alice, bob = user("alice"), user("bob")
    refused = alice.create(owner="bob")
    assert refused.error_code == E.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name, refused.max_timestamp_ms) == (
        "bob",
        "alice",
        -1,
    )
    admin = user("admin")
    made = admin.create(owner="bob")
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "bob", "admin")
    eventually(lambda: made.token_id in bob.sees(), "bob sees what he owns")
    assert made.token_id not in alice.sees()
    assert admin.renew(made.hmac) == (E.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert bob.expire(made.hmac)[0] == 0


def test_who_sees_which_tokens(user: Callable[[str], User]) -> None:
    alice, bob, admin = user("alice"), user("bob"), user("admin")
    made = alice.create(renewers=("User:bob",))
    own = bob.create()
    eventually(lambda: {made.token_id, own.token_id} <= bob.sees(), "bob sees what he owns and renews")
    assert own.token_id not in alice.sees()
    assert made.token_id in bob.sees("alice")
    assert own.token_id not in bob.sees("alice")
    assert {made.token_id, own.token_id} <= admin.sees(), "a super user sees all"
    assert alice.client.call(DescribeDelegationTokenRequest([]), 3).tokens == []
    assert (alice.expire(made.hmac)[0], bob.expire(own.hmac)[0]) == (0, 0)


def test_who_is_not_known_has_no_business_with_tokens(user: Callable[[str], User]) -> None:
    nobody = user("")
    refused = nobody.create()
    assert (refused.error_code, refused.principal_name) == (E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "ANONYMOUS")
    assert (refused.issue_timestamp_ms, refused.expiry_timestamp_ms, refused.max_timestamp_ms) == (-1, -1, -1)
    assert nobody.renew(NOBODYS) == (E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
    assert nobody.expire(NOBODYS) == (E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
    assert nobody.describe().error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
