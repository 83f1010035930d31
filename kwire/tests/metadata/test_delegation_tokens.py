"""Delegation tokens: permission to get, renew, end and see them, as in Apache Kafka 4.3.1; SCRAM."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_configs import FeatureLevelRecord
from kwire_protocol.internal.metadata_security import DelegationTokenRecord
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
from kwire_protocol.wire import Writer

from kwire.handlers import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from kwire.handlers.apis import bound
from kwire.metadata.controller.access import delegation_tokens as rules
from kwire.metadata.controller.access.delegation_tokens import remove_expired
from kwire.metadata.delegation_tokens import DelegationTokens
from kwire.metadata.service import MetadataService
from kwire.security.authorizer import Operation, ResourceType
from kwire.security.delegation_tokens import hmac_of, password_of, principal_of
from kwire.security.principal import ANONYMOUS, Principal, Requester
from kwire.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge, SaslSession
from kwire.security.sasl.scram import SCRAM_MECHANISMS, SCRAM_SHA_256, Scram, ScramClient
from testkit.metadata.distant_log import answered
from testkit.metadata.harness import NOW_MS, FakeBroker, FakeClock, context, record, service
from testkit.security.requests import Denier

E = ErrorCode
CREATE_DELEGATION_TOKEN = 38
KEY = "a secret of all brokers"
HOUR, DAY = 3_600_000, 86_400_000
SETTINGS = {"delegation.token.secret.key": KEY}
ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
MAX_LONG = (1 << 63) - 1


@attrs.define
class Scene:
    """A broker with tokens. Users may do only what is in `authorizer.permitted`."""

    metadata: MetadataService
    authorizer: Denier = attrs.Factory(Denier)
    version: int = 3
    """Of the requests, as far as there is one."""

    @classmethod
    def begin(cls, settings: Mapping[str, str] = SETTINGS) -> Scene:
        return cls(service(settings))

    @property
    def clock(self) -> FakeClock:
        assert isinstance(self.metadata.clock, FakeClock)
        return self.metadata.clock

    @property
    def ids(self) -> set[str]:
        return set(self.metadata.image.access.delegation_tokens)

    def _handled(self, handler: Any, request: Any, principal: Principal, *, has_sasl: bool = True) -> Any:
        broker: Any = FakeBroker(self.metadata, self.authorizer)
        of_client = context(min(self.version, request.versions[-1]))
        of_client.api_key = CREATE_DELEGATION_TOKEN
        of_client.requester = Requester(principal, "host")
        of_client.sasl = SaslSession({}, {}) if has_sasl else None
        response = bound(handler.handle, broker)(request, of_client)
        if handler is not describe_delegation_token:
            response = answered(response)
        response.write(Writer(), of_client.api_version)
        return response

    def create(
        self,
        requester: Principal = ALICE,
        *,
        owner: Principal | None = None,
        renewers: tuple[Principal, ...] = (),
        max_lifetime_ms: int = -1,
        has_sasl: bool = True,
    ) -> CreateDelegationTokenResponse:
        request = CreateDelegationTokenRequest(
            owner.type if owner else None,
            owner.name if owner else None,
            [CreatableRenewers(it.type, it.name) for it in renewers],
            max_lifetime_ms,
        )
        response: CreateDelegationTokenResponse
        response = self._handled(create_delegation_token, request, requester, has_sasl=has_sasl)
        return response

    def renew(self, token: bytes, requester: Principal = ALICE, period_ms: int = -1, **how: Any) -> tuple[int, int]:
        request = RenewDelegationTokenRequest(token, period_ms)
        response = self._handled(renew_delegation_token, request, requester, **how)
        return response.error_code, response.expiry_timestamp_ms

    def expire(self, token: bytes, requester: Principal = ALICE, period_ms: int = -1, **how: Any) -> tuple[int, int]:
        request = ExpireDelegationTokenRequest(token, period_ms)
        response = self._handled(expire_delegation_token, request, requester, **how)
        return response.error_code, response.expiry_timestamp_ms

    def describe(self, requester: Principal = ALICE, owners: list[Principal] | None = None, **how: Any) -> Any:
        wanted = None if owners is None else [DescribeDelegationTokenOwner(it.type, it.name) for it in owners]
        return self._handled(describe_delegation_token, DescribeDelegationTokenRequest(wanted), requester, **how)

    def seen(self, requester: Principal, owners: list[Principal] | None = None) -> set[str]:
        response = self.describe(requester, owners)
        assert response.error_code == 0
        return {it.token_id for it in response.tokens}

    def expires_ms(self, token_id: str) -> int:
        return self.metadata.image.access.delegation_tokens[token_id].expiration_timestamp


def test_a_token_has_a_secret_that_no_record_has() -> None:
    scene = Scene.begin()
    token = scene.create(renewers=(BOB,))
    assert token.error_code == 0
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    assert (token.token_requester_principal_type, token.token_requester_principal_name) == ("User", "alice")
    assert token.hmac == hmac.new(KEY.encode(), token.token_id.encode(), hashlib.sha512).digest()
    assert (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms) == (
        NOW_MS,
        NOW_MS + DAY,
        NOW_MS + 7 * DAY,
    )
    assert list(scene.metadata.image.access.delegation_tokens.values()) == [
        DelegationTokenRecord(
            "User:alice", "User:alice", ["User:bob"], NOW_MS, NOW_MS + 7 * DAY, NOW_MS + DAY, token.token_id
        )
    ]
    assert KEY not in repr(scene.metadata.config)


def test_a_life_is_as_long_as_requested_but_not_longer_than_configured() -> None:
    scene = Scene.begin(
        SETTINGS | {"delegation.token.expiry.time.ms": "1000", "delegation.token.max.lifetime.ms": "5000"}
    )
    lives = {-1: 5000, 0: 5000, 500: 500, 4999: 4999, 5001: 5000, MAX_LONG: 5000}
    for requested_ms, life_ms in lives.items():
        token = scene.create(max_lifetime_ms=requested_ms)
        assert token.max_timestamp_ms - NOW_MS == life_ms
        assert token.expiry_timestamp_ms - NOW_MS == min(1000, life_ms)


def test_times_that_would_be_too_large_are_the_largest() -> None:
    scene = Scene.begin(
        SETTINGS | {"delegation.token.expiry.time.ms": str(MAX_LONG), "delegation.token.max.lifetime.ms": str(MAX_LONG)}
    )
    token = scene.create()
    assert (token.expiry_timestamp_ms, token.max_timestamp_ms) == (MAX_LONG, MAX_LONG)
    assert scene.renew(token.hmac, period_ms=MAX_LONG) == (0, MAX_LONG)
    assert scene.expire(token.hmac, period_ms=MAX_LONG) == (0, MAX_LONG)


def test_the_owner_and_its_renewers_renew() -> None:
    scene = Scene.begin()
    token = scene.create(renewers=(BOB,))
    scene.clock.time_ms += HOUR
    assert scene.renew(token.hmac, ALICE) == (0, NOW_MS + HOUR + DAY)
    assert scene.renew(token.hmac, BOB, period_ms=1000) == (0, NOW_MS + HOUR + 1000)
    assert scene.renew(token.hmac, BOB, period_ms=0) == (0, NOW_MS + HOUR + DAY)
    assert scene.renew(token.hmac, BOB, period_ms=2 * DAY) == (0, NOW_MS + HOUR + DAY)
    assert scene.expires_ms(token.token_id) == NOW_MS + HOUR + DAY
    assert scene.renew(token.hmac, CAROL)[0] == E.DELEGATION_TOKEN_OWNER_MISMATCH
    assert scene.renew(b"x" * 64, ALICE) == (E.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert scene.renew(b"", ALICE)[0] == E.DELEGATION_TOKEN_NOT_FOUND
    assert scene.renew(token.token_id.encode(), ALICE)[0] == E.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_is_not_renewed_beyond_its_life() -> None:
    scene = Scene.begin()
    token = scene.create(max_lifetime_ms=DAY + HOUR)
    scene.clock.time_ms += DAY
    assert scene.renew(token.hmac) == (0, NOW_MS + DAY + HOUR)


def test_an_expired_token_can_only_be_ended() -> None:
    scene = Scene.begin()
    token = scene.create(renewers=(BOB,))
    scene.clock.time_ms += DAY
    assert scene.renew(token.hmac)[0] == 0, "its last millisecond"
    scene.clock.time_ms += DAY + 1
    assert scene.renew(token.hmac, ALICE)[0] == E.DELEGATION_TOKEN_EXPIRED
    assert scene.renew(token.hmac, CAROL)[0] == E.DELEGATION_TOKEN_EXPIRED
    assert scene.expire(token.hmac, CAROL, period_ms=0)[0] == E.DELEGATION_TOKEN_OWNER_MISMATCH
    assert scene.expire(token.hmac, ALICE, period_ms=0)[0] == E.DELEGATION_TOKEN_EXPIRED
    assert scene.expire(token.hmac, CAROL)[0] == E.DELEGATION_TOKEN_OWNER_MISMATCH
    assert scene.expire(token.hmac, BOB) == (0, scene.clock.time_ms)
    assert scene.ids == set()
    assert scene.expire(token.hmac)[0] == E.DELEGATION_TOKEN_NOT_FOUND
    assert scene.renew(token.hmac)[0] == E.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_that_expires_while_its_renewal_waits_for_its_turn_is_not_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene.begin()
    token = scene.create()
    change = MetadataService.change

    def late(metadata: MetadataService, *request: Any, **named: Any) -> Any:
        scene.clock.time_ms += DAY + 1
        return change(metadata, *request, **named)

    monkeypatch.setattr(MetadataService, "change", late)
    assert scene.renew(token.hmac)[0] == E.DELEGATION_TOKEN_EXPIRED


def test_a_token_can_be_made_to_expire_at_another_time() -> None:
    scene = Scene.begin()
    token = scene.create()
    assert scene.expire(token.hmac, period_ms=1000) == (0, NOW_MS + 1000)
    assert scene.expire(token.hmac, period_ms=100 * DAY) == (0, NOW_MS + 7 * DAY)
    assert scene.expire(token.hmac, period_ms=0) == (0, NOW_MS)
    assert scene.ids == {token.token_id}
    scene.clock.time_ms += 1
    assert scene.renew(token.hmac)[0] == E.DELEGATION_TOKEN_EXPIRED


def test_renewers_are_users() -> None:
    scene = Scene.begin()
    assert scene.create(renewers=(BOB, Principal("Group", "staff"))).error_code == E.INVALID_PRINCIPAL_TYPE
    assert scene.create(renewers=(Principal("user", "bob"),)).error_code == E.INVALID_PRINCIPAL_TYPE
    assert scene.create(renewers=(BOB,) * (rules.MAX_RENEWERS + 1)).error_code == E.POLICY_VIOLATION
    assert scene.ids == set()


def test_tokens_of_others_need_a_permission() -> None:
    scene = Scene.begin()
    refused = scene.create(ALICE, owner=BOB)
    assert refused.error_code == E.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "alice")
    assert (refused.issue_timestamp_ms, refused.expiry_timestamp_ms, refused.max_timestamp_ms) == (-1, -1, -1)
    assert (refused.token_id, refused.hmac) == ("", b"")
    scene.authorizer.permitted.add((Operation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
    token = scene.create(ALICE, owner=BOB)
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "bob", "alice")
    # The requester can neither renew nor end it.
    assert scene.renew(token.hmac, ALICE)[0] == E.DELEGATION_TOKEN_OWNER_MISMATCH
    assert scene.expire(token.hmac, ALICE)[0] == E.DELEGATION_TOKEN_OWNER_MISMATCH
    assert scene.renew(token.hmac, BOB)[0] == 0
    assert scene.seen(ALICE) == scene.seen(BOB) == {token.token_id}
    assert scene.create(ALICE, owner=ALICE).error_code == 0, "its own needs none"


@pytest.mark.parametrize(
    ("principal", "has_sasl", "is_allowed"),
    [
        (ALICE, True, True),
        (Principal("User", "CN=alice"), False, True),
        (ANONYMOUS, False, False),
        (ANONYMOUS, True, True),
        (Principal("User", "alice", token_authenticated=True), True, False),
    ],
)
def test_only_clients_that_are_known_and_not_by_a_token_may_send_requests(
    principal: Principal, has_sasl: bool, is_allowed: bool
) -> None:
    scene = Scene.begin()
    token = scene.create(principal, has_sasl=has_sasl)
    answers = [
        token.error_code,
        scene.describe(principal, has_sasl=has_sasl).error_code,
        scene.renew(token.hmac, principal, has_sasl=has_sasl)[0],
        scene.expire(token.hmac, principal, has_sasl=has_sasl)[0],
    ]
    assert answers == [0 if is_allowed else E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED] * 4
    if not is_allowed:
        assert scene.renew(b"", principal, has_sasl=has_sasl)[1] == -1


@pytest.mark.parametrize("settings", [{}, {"delegation.token.secret.key": ""}])
def test_without_a_key_there_are_no_tokens(settings: dict[str, str]) -> None:
    scene = Scene.begin(settings)
    record(scene.metadata, DelegationTokenRecord("User:alice", "User:alice", [], 1, MAX_LONG, MAX_LONG, "t"))
    answers = [
        scene.create().error_code,
        scene.describe().error_code,
        scene.renew(b"x")[0],
        scene.expire(b"x")[0],
    ]
    assert answers == [E.DELEGATION_TOKEN_AUTH_DISABLED] * 4
    assert scene.create().max_timestamp_ms == 0
    assert scene.create(renewers=(Principal("Group", "staff"),)).error_code == E.INVALID_PRINCIPAL_TYPE


def test_tokens_need_a_metadata_version_that_has_them() -> None:
    scene = Scene.begin()
    record(scene.metadata, FeatureLevelRecord("metadata.version", 13))
    assert scene.create().error_code == E.UNSUPPORTED_VERSION
    assert scene.renew(b"x")[0] == E.UNSUPPORTED_VERSION
    assert scene.expire(b"x")[0] == E.UNSUPPORTED_VERSION


# -- seeing


def test_owners_requesters_and_renewers_see_their_tokens() -> None:
    scene = Scene.begin()
    scene.authorizer.permitted.add((Operation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
    own = scene.create(ALICE).token_id
    bobs = scene.create(ALICE, owner=BOB).token_id
    renewable = scene.create(BOB, renewers=(CAROL,)).token_id
    assert scene.seen(ALICE) == {own, bobs}
    assert scene.seen(BOB) == {bobs, renewable}
    assert scene.seen(CAROL) == {renewable}
    assert scene.seen(Principal("User", "dave")) == set()
    assert scene.seen(Principal("Group", "alice")) == set()


def test_others_see_tokens_by_permissions() -> None:
    scene = Scene.begin()
    first, second, third = scene.create(ALICE).token_id, scene.create(ALICE).token_id, scene.create(BOB).token_id
    scene.authorizer.permitted = {(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, first)}
    assert scene.seen(CAROL) == {first}
    scene.authorizer.permitted = {(Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice")}
    assert scene.seen(CAROL) == {first, second}
    assert scene.seen(CAROL, [BOB]) == set()
    assert scene.seen(BOB) == {first, second, third}


def test_the_tokens_of_some_owners_are_described() -> None:
    scene = Scene.begin()
    token = scene.create(ALICE, renewers=(BOB,))
    other = scene.create(ALICE)
    assert scene.seen(ALICE, [BOB]) == {token.token_id}
    assert scene.seen(ALICE, [BOB, ALICE]) == {token.token_id, other.token_id}
    assert scene.seen(ALICE, [CAROL]) == set()
    assert scene.seen(ALICE, []) == set()


def test_what_is_seen_of_a_token() -> None:
    scene = Scene.begin()
    scene.authorizer.permitted.add((Operation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
    token = scene.create(ALICE, owner=BOB, renewers=(CAROL, ALICE))
    (seen,) = scene.describe(ALICE).tokens
    assert (seen.principal_type, seen.principal_name) == ("User", "bob")
    assert (seen.token_requester_principal_type, seen.token_requester_principal_name) == ("User", "alice")
    assert (seen.token_id, seen.hmac) == (token.token_id, token.hmac)
    assert (seen.issue_timestamp, seen.expiry_timestamp, seen.max_timestamp) == (NOW_MS, NOW_MS + DAY, NOW_MS + 7 * DAY)
    assert [(it.principal_type, it.principal_name) for it in seen.renewers] == [("User", "carol"), ("User", "alice")]


def test_the_requester_of_a_token_is_returned_since_version_3() -> None:
    scene = Scene.begin()
    for version, name in ((1, ""), (2, ""), (3, "alice")):
        scene.version = version
        token = scene.create()
        assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "alice", name)
        assert scene.renew(token.hmac)[0] == 0
        (seen,) = scene.describe().tokens
        assert (seen.principal_name, seen.token_requester_principal_name) == ("alice", name)
        assert scene.expire(token.hmac)[0] == 0
        assert scene.create(renewers=(Principal("Group", "staff"),)).token_requester_principal_name == name


# -- removing


def test_tokens_that_expired_are_removed() -> None:
    scene = Scene.begin()
    short, long = scene.create(max_lifetime_ms=HOUR), scene.create()
    scene.clock.time_ms += HOUR
    answered(scene.metadata.change(remove_expired))
    assert scene.ids == {short.token_id, long.token_id}
    scene.clock.time_ms += 1
    answered(scene.metadata.change(remove_expired))
    assert scene.ids == {long.token_id}


def test_very_many_tokens_that_expired_are_removed_in_several_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_REMOVED_AT_ONCE", 2)
    scene = Scene.begin()
    for _ in range(5):
        scene.create()
    scene.clock.time_ms += DAY + 1
    assert rules.remove_expired(scene.metadata.state)[1]
    assert [answered(scene.metadata.change(remove_expired)) for _ in range(3)] == [True, True, False]
    assert scene.ids == set()


# -- the secrets


def test_tokens_of_the_metadata_log_are_found_by_their_secrets() -> None:
    scene = Scene.begin()
    life = NOW_MS + DAY
    record(scene.metadata, DelegationTokenRecord("User:bob", "User:bob", [], NOW_MS, life, life, "before"))
    assert scene.renew(hmac_of(KEY, "before"), BOB)[0] == 0
    record(scene.metadata, DelegationTokenRecord("User:bob", "User:bob", [], NOW_MS, life, life, "after"))
    assert scene.renew(hmac_of(KEY, "after"), BOB)[0] == 0
    assert scene.renew(hmac_of("another key", "after"), BOB)[0] == E.DELEGATION_TOKEN_NOT_FOUND


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "renew", "expire", "remove", "wait"]),
        st.sampled_from([ALICE, BOB, CAROL]),
        st.integers(0, 3),
        st.sampled_from([-1, 0, 1, 500, 2000, 10_000]),
    ),
    max_size=30,
)


@attrs.define
class Model:
    """A token by the rules of KIP-48, implemented in another way."""

    owner: Principal
    renewer: Principal
    ends_ms: int
    expires_ms: int


@given(STEPS)
def test_whatever_is_requested_tokens_live_by_the_rules(steps: list[tuple[str, Principal, int, int]]) -> None:
    scene = Scene(plain_service())
    models: dict[str, Model] = {}
    secrets: list[tuple[str, bytes]] = [("none", b"x")]
    for step, who, number, period_ms in steps:
        now_ms = scene.clock.time_ms
        token_id, secret = secrets[number % len(secrets)]
        model = models.get(token_id)
        is_over = model is not None and min(model.ends_ms, model.expires_ms) < now_ms
        may = model is not None and who in (model.owner, model.renewer)
        if step == "create":
            made = scene.create(who, renewers=(CAROL,), max_lifetime_ms=period_ms)
            life_ms = period_ms if 0 < period_ms < 5000 else 5000
            models[made.token_id] = Model(who, CAROL, now_ms + life_ms, now_ms + min(life_ms, 1000))
            secrets.append((made.token_id, made.hmac))
        elif step == "renew":
            code, expires_ms = scene.renew(secret, who, period_ms)
            expected = E.NONE if may else E.DELEGATION_TOKEN_OWNER_MISMATCH
            expected = E.DELEGATION_TOKEN_EXPIRED if is_over else expected
            assert code == (E.DELEGATION_TOKEN_NOT_FOUND if model is None else expected)
            if not code and model:
                model.expires_ms = min(model.ends_ms, now_ms + (period_ms if 0 < period_ms < 1000 else 1000))
                assert expires_ms == model.expires_ms
        elif step == "expire":
            code, expires_ms = scene.expire(secret, who, period_ms)
            expected = E.DELEGATION_TOKEN_EXPIRED if is_over and period_ms >= 0 else E.NONE
            expected = expected if may else E.DELEGATION_TOKEN_OWNER_MISMATCH
            assert code == (E.DELEGATION_TOKEN_NOT_FOUND if model is None else expected)
            if not code and model:
                if period_ms < 0:
                    del models[token_id]
                else:
                    model.expires_ms = min(model.ends_ms, now_ms + period_ms)
        elif step == "remove":
            answered(scene.metadata.change(remove_expired))
            models = {key: it for key, it in models.items() if min(it.ends_ms, it.expires_ms) >= now_ms}
        else:
            scene.clock.time_ms += max(0, period_ms)
        assert {key: it.expires_ms for key, it in models.items()} == {key: scene.expires_ms(key) for key in scene.ids}
        tokens = scene.metadata.delegation_tokens
        assert tokens is not None
        assert tokens._ids == {hmac_of(KEY, key): key for key in scene.ids}


def plain_service() -> MetadataService:
    return service(SETTINGS | {"delegation.token.expiry.time.ms": "1000", "delegation.token.max.lifetime.ms": "5000"})


# -- SCRAM


def login(tokens: DelegationTokens, mechanism_name: str, token_id: str, password: str, now_ms: int) -> Authenticated:
    mechanism = SCRAM_MECHANISMS[mechanism_name]

    def find(name: str, *, is_token: bool) -> Any:
        return tokens.credential(name, mechanism, now_ms=now_ms) if is_token else None

    exchange = Scram(mechanism, find, secret=b"s", new_nonce=lambda: "n").begin()
    client = ScramClient(mechanism, token_id, password, "nonce", is_token=True)
    data = client.respond(None)
    while True:
        assert data is not None
        step = exchange.respond(data, now_ms=now_ms)
        if not isinstance(step, Challenge):
            assert client.respond(step.data) is None
            return step
        data = client.respond(step.data)


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_a_token_logs_its_owner_in_until_it_expires(mechanism: str) -> None:
    scene = Scene.begin()
    token = scene.create(renewers=(BOB,))
    tokens = scene.metadata.delegation_tokens
    assert tokens is not None
    for _ in range(2):
        step = login(tokens, mechanism, token.token_id, password_of(token.hmac), NOW_MS)
        assert (step.principal, step.expires_at_ms) == (ALICE, NOW_MS + DAY)
        assert step.principal.token_authenticated
    scene.renew(token.hmac, period_ms=1000)
    assert login(tokens, mechanism, token.token_id, password_of(token.hmac), NOW_MS).expires_at_ms == NOW_MS + 1000


def test_a_wrong_secret_an_expired_token_and_an_ended_one_log_nobody_in() -> None:
    scene = Scene.begin()
    token, other = scene.create(), scene.create()
    tokens = scene.metadata.delegation_tokens
    assert tokens is not None
    for token_id, secret, now_ms in (
        (token.token_id, other.hmac, NOW_MS),
        ("unknown", token.hmac, NOW_MS),
        (token.token_id, token.hmac, NOW_MS + DAY + 1),
    ):
        with pytest.raises(AuthenticationFailed):
            login(tokens, "SCRAM-SHA-256", token_id, password_of(secret), now_ms)
    login(tokens, "SCRAM-SHA-256", token.token_id, password_of(token.hmac), NOW_MS)
    scene.expire(token.hmac)
    assert tokens.credential(token.token_id, SCRAM_SHA_256, now_ms=NOW_MS) is None
    assert tokens._credentials == {}


def test_an_expired_token_has_no_credential_whatever_has_expired_of_it() -> None:
    tokens = DelegationTokens(
        {it.token_id: it for it in (ended(5, 9, "life"), ended(9, 5, "time"), ended(9, 9, "none"))}, KEY
    )
    known = {it for it in tokens.tokens if tokens.credential(it, SCRAM_SHA_256, now_ms=6) is not None}
    assert known == {"none"}
    assert tokens.credential("life", SCRAM_SHA_256, now_ms=5) is not None


def ended(max_ms: int, expires_ms: int, token_id: str) -> DelegationTokenRecord:
    return DelegationTokenRecord("User:alice", "User:alice", [], 1, max_ms, expires_ms, token_id)


def test_principals_are_read_up_to_the_first_colon() -> None:
    assert principal_of("User:a:b") == Principal("User", "a:b")
    assert principal_of("User:") == Principal("User", "")


def test_secrets_are_not_shown() -> None:
    tokens = DelegationTokens({}, KEY)
    assert KEY not in repr(tokens)
