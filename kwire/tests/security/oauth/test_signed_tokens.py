"""The check of signed tokens: the signature, the claims, and an attacker's attempts."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm

from kwire.security.oauth.keys import ALGORITHMS, MAX_KEYS, MAX_SET_BYTES, MAX_TRIED, KeySet, UnusableKeys
from kwire.security.oauth.signed import SignedTokens, TokenRules
from kwire.security.oauth.token import MAX_TOKEN_LENGTH, AcceptedToken, CompactToken, TokenRejected
from testkit.security.oauth.issuer import (
    NOW_MS,
    NOW_S,
    claims,
    jwk,
    jwks,
    kind_of,
    private_key,
    segment,
    token,
    unsigned,
)


class Keys:
    """A `KeyHolder` for tests that records the unknown keys that it was notified of."""

    def __init__(self, *members: dict[str, Any], trouble: str | None = None) -> None:
        self.keys = KeySet.parse(jwks(*members)) if members else KeySet()
        self.trouble = trouble
        self.unknown: list[str | None] = []

    def note_unknown(self, kid: str | None) -> None:
        self.unknown.append(kid)


def validator(*members: dict[str, Any], **rules: Any) -> SignedTokens:
    return SignedTokens(Keys(*(members or (jwk("k1"),))), TokenRules(**rules))


def rejection(tokens: SignedTokens, text: str) -> str:
    with pytest.raises(TokenRejected) as caught:
        tokens.validate(text, now_ms=NOW_MS)
    assert caught.value.status == "invalid_token"
    return str(caught.value)


@pytest.mark.parametrize("alg", sorted(ALGORITHMS))
def test_a_token_of_each_algorithm_has_a_principal_and_an_expiry(alg: str) -> None:
    tokens = validator(jwk("k1", alg))
    accepted = tokens.validate(token(alg=alg), now_ms=NOW_MS)
    assert accepted == AcceptedToken("alice", (NOW_S + 600) * 1000)


def test_a_token_that_names_no_key_is_tried_with_all_that_fit() -> None:
    tokens = validator(jwk("k1"), jwk("k2", key=private_key("RSA", 1)), jwk("k3", "ES256"))
    assert tokens.validate(token(kid=None, key=private_key("RSA", 1)), now_ms=NOW_MS).principal_name == "alice"
    assert "signature" in rejection(tokens, token(kid=None, key=private_key("RSA", 2)))


def test_of_very_many_keys_that_fit_only_some_are_tried() -> None:
    others = [jwk(f"other {number}", key=private_key("RSA", 1)) for number in range(MAX_TRIED)]
    text = token(kid=None)
    validator(jwk("k1"), *others).validate(text, now_ms=NOW_MS)
    assert "signature" in rejection(validator(*others, jwk("k1")), text)
    validator(*others, jwk("k1")).validate(token(), now_ms=NOW_MS)


# -- signatures


def test_a_token_without_signature_is_rejected() -> None:
    for alg in ("none", "None", "NONE", "nOnE", "", None, 7, ["RS256"], {"RS256": 1}):
        text = rejection(validator(), unsigned(header={"alg": alg, "kid": "k1"}))
        assert "is not accepted" in text
    assert "is not accepted" in rejection(validator(), unsigned(header={"kid": "k1"}))
    header, payload, _ = token().split(".")
    assert "signature" in rejection(validator(), f"{header}.{payload}.")


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
def test_an_hmac_with_the_public_key_as_its_secret_is_rejected(encoding: Encoding) -> None:
    public = private_key("RSA").public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
    secrets = (public, json.dumps(jwk("k1")).encode(), jwk("k1")["n"].encode())
    for secret in secrets:
        signed = f"{segment({'alg': 'HS256', 'kid': 'k1'})}.{segment(claims())}"
        forged = f"{signed}.{segment(hmac.digest(secret, signed.encode(), hashlib.sha256))}"
        assert "'HS256', which is not accepted" in rejection(validator(), forged)


def test_a_symmetric_key_in_the_set_is_not_used() -> None:
    secret = b"a secret of thirty-two characters"
    shared = {"kty": "oct", "kid": "shared", "k": segment(secret), "alg": "HS256"}
    signed = f"{segment({'alg': 'HS256', 'kid': 'shared'})}.{segment(claims())}"
    forged = f"{signed}.{segment(hmac.digest(secret, signed.encode(), hashlib.sha256))}"
    assert "is not accepted" in rejection(validator(jwk("k1"), shared), forged)


def test_a_token_of_another_key_is_rejected() -> None:
    assert "the signature is not that of the key 'k1'" in rejection(validator(), token(key=private_key("RSA", 1)))


def test_a_key_that_the_token_brings_along_is_not_used() -> None:
    own = private_key("RSA", 1)
    forged = token(key=own, jwk=jwk("k1", key=own), jku="https://evil.example/keys", x5u="https://evil.example/keys")
    assert "signature" in rejection(validator(), forged)


def test_a_changed_payload_or_header_is_rejected() -> None:
    header, _, signature = token().split(".")
    assert "signature" in rejection(validator(), f"{header}.{segment(claims(sub='root'))}.{signature}")
    _, payload, signature = token().split(".")
    other = segment({"alg": "RS256", "kid": "k1", "typ": "other"})
    assert "signature" in rejection(validator(), f"{other}.{payload}.{signature}")


def test_a_key_is_used_with_no_other_algorithm_than_its_own() -> None:
    text = rejection(validator(jwk("k1", alg="RS256") | {"alg": "RS512"}), token())
    assert "no known key for RS256 has the id 'k1'" in text
    assert "no known key" in rejection(validator(jwk("k1", "ES256")), token())
    assert "no known key" in rejection(validator(jwk("k1", "ES384")), token(alg="ES256"))


def test_extensions_that_a_token_demands_are_not_known() -> None:
    assert "crit" in rejection(validator(), token(crit=["exp"], exp=1))
    signed = f"{segment({'alg': 'RS256', 'kid': 'k1', 'b64': False, 'crit': ['b64']})}.{segment(claims())}"
    assert "crit" in rejection(validator(), f"{signed}.{segment(b'x' * 256)}")


def test_an_unknown_key_is_requested() -> None:
    tokens = validator()
    assert "has the id 'new' that the token names" in rejection(tokens, token(kid="new"))
    assert isinstance(tokens.holder, Keys)
    assert tokens.holder.unknown == ["new"]
    assert "something that is not a text" in rejection(tokens, unsigned(header={"alg": "RS256", "kid": 3}))


def test_without_keys_every_token_is_rejected_and_the_log_has_the_reason() -> None:
    tokens = SignedTokens(Keys(trouble="https://issuer/keys cannot be read: Connection refused"))
    assert "no keys to check it with: https://issuer/keys cannot be read" in rejection(tokens, token())


# -- claims


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": NOW_S - 30}, "it expired 30 s ago"),
        ({"exp": None}, "the claim exp is missing"),
        ({"iat": None}, "the claim iat is missing"),
        ({"exp": "tomorrow"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": -1}, "exp is not a time"),
        ({"exp": 1 << 53}, "exp is not a time"),
        ({"exp": [NOW_S + 60]}, "exp is not a time"),
        ({"iat": "1700000000"}, "iat is not a time"),
        ({"nbf": {}}, "nbf is not a time"),
        ({"nbf": NOW_S + 31}, "not valid for another 31 s"),
        ({"iat": NOW_S + 31}, "issued 31 s from now"),
        ({"iat": NOW_S + 700, "exp": NOW_S + 600}, "expires before it begins"),
        ({"nbf": NOW_S + 700, "exp": NOW_S + 600}, "expires before it begins"),
        ({"sub": None}, "the claim sub, the name of the principal, is None"),
        ({"sub": ""}, "the claim sub"),
        ({"sub": "  "}, "the claim sub"),
        ({"sub": 7}, "the claim sub"),
        ({"sub": ["alice"]}, "the claim sub"),
        ({"sub": "alice\nUser:root"}, "control characters"),
        ({"sub": "a" * 1001}, "it has 1001 characters"),
        ({"aud": "kafka"}, "expected.audience is not set"),
        ({"aud": []}, "expected.audience is not set"),
        ({"aud": 7}, "it is for 7"),
        ({"scope": ""}, "no scope"),
        ({"scope": ["read", " "]}, "no scope"),
        ({"scope": ["read", 7]}, "no scope"),
        ({"scope": ["read", " read "]}, "the same scope twice"),
    ],
)
def test_a_token_with_a_wrong_claim_is_rejected(changes: dict[str, Any], reason: str) -> None:
    assert reason in rejection(validator(), token(claims(**changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW_S - 29, "iat": NOW_S - 60},
        {"exp": NOW_S + 0.5},
        {"nbf": NOW_S + 30},
        {"iat": NOW_S + 30},
        {"scope": "read write"},
        {"scope": ["read", "write"]},
        {"scope": {"read": True}},
        {"sub": " alice "},
        {"iss": "anybody"},
        {"extra": [[[{"a": None}]]]},
    ],
)
def test_a_token_within_the_rules_is_accepted(changes: dict[str, Any]) -> None:
    assert validator().validate(token(claims(**changes)), now_ms=NOW_MS).principal_name == "alice"


def test_the_audience_is_one_of_those_expected() -> None:
    tokens = validator(expected_audience=("kafka", "kwire"))
    for audience in ("kwire", ["other", "kafka"]):
        tokens.validate(token(claims(aud=audience)), now_ms=NOW_MS)
    for wrong in ("other", ["other"], [], None, 7, [7, "kafka"], "kafka,kwire"):
        assert "not for ['kafka', 'kwire']" in rejection(tokens, token(claims(aud=wrong)))


def test_the_issuer_is_the_one_expected() -> None:
    tokens = validator(expected_issuer="https://issuer")
    tokens.validate(token(claims(iss="https://issuer")), now_ms=NOW_MS)
    # PyJWT refuses to encode an issuer that is no text.
    for wrong in ("https://issuer/", "HTTPS://ISSUER", None):
        assert "it was issued by" in rejection(tokens, token(claims(iss=wrong)))


def test_the_names_of_the_claims_can_be_others() -> None:
    tokens = validator(sub_claim="preferred_username", scope_claim="scp")
    body = claims(preferred_username="bob", sub="7f3a", scp="read", scope="")
    assert tokens.validate(token(body), now_ms=NOW_MS).principal_name == "bob"
    assert "preferred_username" in rejection(tokens, token())


def test_no_tolerance_means_the_millisecond() -> None:
    tokens = validator(clock_skew_s=0)
    body = token(claims(exp=NOW_S + 1))
    tokens.validate(body, now_ms=NOW_MS + 999)
    with pytest.raises(TokenRejected, match="expired"):
        tokens.validate(body, now_ms=NOW_MS + 1000)


# -- malformed and huge


def signed_bytes(payload: bytes) -> str:
    """Makes a token with a right signature for any payload."""
    from jwt.api_jws import PyJWS

    return PyJWS().encode(payload, private_key("RSA"), "RS256", headers={"kid": "k1"})


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"7", "not a JSON object"),
        (b"\xff", "not JSON"),
        (b"[" * 30_000, "too many levels"),
        (b'{"a":' * 5_000, "not JSON"),
        (b'{"sub":"alice","sub":"root","iat":1,"exp":9e9}', "a name is there twice"),
        (b'{"sub":"alice","iat":1700000000,"exp":1e999}', "exp is not a time"),
        (b'{"sub":"alice","iat":1700000000,"exp":NaN}', "NaN is not a number"),
        (b'{"sub":"alice","iat":1700000000,"exp":' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_a_payload_that_is_no_set_of_claims_is_rejected(payload: bytes, reason: str) -> None:
    assert reason in rejection(validator(), signed_bytes(payload))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "three sections"),
        ("a", "three sections"),
        ("a.b", "three sections"),
        ("a.b.c.d", "three sections"),
        ("....", "three sections"),
        ("..", "header is not JSON"),
        ("e30.e30.", "which is not accepted"),
        ("A.e30.", "header is not in base64url"),
        ("e+/0.e30.", "header is not in base64url"),
        ("é.e30.", "header is not in base64url"),
        (f"{segment([])}.e30.", "header is not a JSON object"),
        (f"{segment(b'{' * 3000)}.e30.", "header is not JSON"),
        (f"{segment(b'[' * 3000)}.e30.", "header is not JSON"),
        (f"{'A' * 5000}.e30.", "header has 5000 characters"),
        ("A" * (MAX_TOKEN_LENGTH + 1), "65537 characters"),
        ("." * 65536, "three sections"),
    ],
)
def test_text_that_is_no_token_is_rejected(text: str, reason: str) -> None:
    assert reason in rejection(validator(), text)


def test_what_a_token_contains_is_on_one_line_of_the_log_and_short() -> None:
    text = rejection(validator(), token(kid="x\n" * 1000))
    assert "\n" not in text
    assert len(text) < 400


TOKENS = validator()


@given(st.text() | st.from_regex(r"[A-Za-z0-9_.-]{0,80}", fullmatch=True))
def test_no_text_makes_the_validator_fail(text: str) -> None:
    with pytest.raises(TokenRejected):
        TOKENS.validate(text, now_ms=NOW_MS)


def lists_and_objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return inner | st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = lists_and_objects(lists_and_objects(SCALARS))
NAMES = st.sampled_from(["sub", "exp", "iat", "nbf", "aud", "iss", "scope"])


@given(st.dictionaries(NAMES, JSON))
def test_no_claims_make_the_validator_fail(changes: dict[str, Any]) -> None:
    text = signed_bytes(json.dumps(claims() | changes).encode())
    rules = SignedTokens(TOKENS.holder, TokenRules(expected_audience=("kafka",)))
    try:
        accepted = rules.validate(text, now_ms=NOW_MS)
    except TokenRejected:
        return
    assert accepted.principal_name


@given(st.dictionaries(st.sampled_from(["alg", "kid", "crit", "b64", "typ"]), JSON))
def test_no_header_makes_the_validator_fail(header: dict[str, Any]) -> None:
    with pytest.raises(TokenRejected):
        TOKENS.validate(f"{segment(header)}.{segment(claims())}.{segment(b'x' * 256)}", now_ms=NOW_MS)


def test_secrets_of_a_token_are_not_shown() -> None:
    compact = CompactToken.parse(token())
    assert "alice" not in repr(compact)
    assert token().split(".")[2] not in repr(compact)


# -- sets of keys


def test_keys_that_are_no_use_are_left_out() -> None:
    small = jwk("small", key=private_key("small RSA"))
    members = [
        jwk("good"),
        small,
        jwk("encrypts") | {"use": "enc"},
        jwk("signs only") | {"key_ops": ["sign"]},
        jwk("odd operations") | {"key_ops": "verify"},
        jwk("unknown algorithm") | {"alg": "RS1"},
        jwk("other curve", "ES256") | {"crv": "P-224"},
        jwk("off the curve", "ES256") | {"x": segment(b"\x01" * 32)},
        jwk("not numbers") | {"n": 7},
        jwk("no numbers") | {"n": ""},
        {"kty": "RSA"},
        {"kty": ["RSA"]},
        {"kty": "oct", "k": "AAAA"},
        {"kty": "OKP", "crv": "X25519", "x": segment(b"x" * 32)},
        7,
        None,
    ]
    keys = KeySet.parse(json.dumps({"keys": members}).encode()).keys
    assert [key.kid for key in keys] == ["good"]


def test_keys_that_this_openssl_does_not_know_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(_member: object) -> object:
        raise UnsupportedAlgorithm("Curve P-256 is not supported")

    members = [jwk("good"), jwk("curve", "ES256")]
    monkeypatch.setattr(ECAlgorithm, "from_jwk", staticmethod(lacking))
    assert [key.kid for key in KeySet.parse(jwks(*members)).keys] == ["good"]


@pytest.mark.parametrize("alg", ["RS256", "ES256", "EdDSA"])
def test_of_a_private_key_only_the_public_half_is_kept(alg: str) -> None:
    from jwt.algorithms import get_default_algorithms

    key = private_key(kind_of(alg))
    member = get_default_algorithms()[alg].to_jwk(key, as_dict=True)
    member.pop("key_ops", None)
    kept = KeySet.parse(jwks(member | {"kid": "k1"})).keys[0].value
    assert type(kept) is type(key.public_key())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "not a JSON Web Key Set"),
        (b"{}", "not a JSON Web Key Set"),
        (b'{"keys":{}}', "not a JSON Web Key Set"),
        (b'{"keys":[]}', "no key that can be used"),
        (b'{"keys":[{"kty":"oct","k":"AAAA"}]}', "no key that can be used"),
        (b"[" * 100_000, "too many levels"),
        (b" " * (MAX_SET_BYTES + 1), "more than 1048576 bytes"),
        (json.dumps({"keys": [{}] * (MAX_KEYS + 1)}).encode(), "257 keys"),
    ],
)
def test_what_is_no_set_of_keys_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(UnusableKeys, match=reason):
        KeySet.parse(data)


@given(st.binary() | JSON.map(lambda value: json.dumps({"keys": value}).encode()))
def test_no_bytes_make_the_reader_of_keys_fail(data: bytes) -> None:
    with pytest.raises(UnusableKeys):
        KeySet.parse(data)


@given(
    st.fixed_dictionaries(
        {"kty": st.sampled_from(["RSA", "EC", "OKP"])},
        optional=dict.fromkeys(
            ("n", "e", "x", "y", "crv", "alg", "use", "kid", "key_ops"),
            JSON | st.sampled_from(["AQAB", "P-256", "Ed25519"]),
        ),
    )
)
def test_no_key_makes_the_reader_of_keys_fail(member: dict[str, Any]) -> None:
    with pytest.raises(UnusableKeys):
        KeySet.parse(jwks(member))
