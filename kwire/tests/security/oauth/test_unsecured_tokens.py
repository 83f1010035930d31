"""Unsigned tokens, for listeners that enable them by name: Kafka's OAuthBearerUnsecuredValidatorCallbackHandler."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.security.oauth.token import AcceptedToken, TokenRejected
from kwire.security.oauth.unsecured import UnsecuredRules, UnsecuredTokens
from testkit.security.oauth.issuer import NOW_MS, NOW_S, claims, token, unsigned


def rejection(text: str, **rules: Any) -> TokenRejected:
    with pytest.raises(TokenRejected) as caught:
        UnsecuredTokens(UnsecuredRules(**rules)).validate(text, now_ms=NOW_MS)
    return caught.value


def test_an_unsigned_token_has_a_principal_and_an_expiry() -> None:
    accepted = UnsecuredTokens().validate(unsigned(), now_ms=NOW_MS)
    assert accepted == AcceptedToken("alice", (NOW_S + 600) * 1000)
    assert UnsecuredTokens().validate(unsigned(claims(iat=None)), now_ms=NOW_MS).principal_name == "alice"


def test_a_signed_token_is_rejected() -> None:
    assert "signed" in str(rejection(token()))
    assert "signed" in str(rejection(unsigned() + "AAAA"))
    assert "signed" in str(rejection(unsigned(header={"alg": "None"})))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sub": None}, "name of the principal"),
        ({"sub": "  "}, "name of the principal"),
        ({"sub": 7}, "name of the principal"),
        ({"exp": None}, "exp is missing"),
        ({"exp": "x"}, "exp is not a time"),
        ({"exp": NOW_S}, "expired"),
        ({"iat": NOW_S + 1}, "in the future"),
        ({"iat": [1]}, "iat is not a time"),
    ],
)
def test_the_claims_of_a_token_must_make_sense(changes: dict[str, Any], reason: str) -> None:
    assert reason in str(rejection(unsigned(claims(**changes))))


def test_a_token_that_expires_before_it_was_issued_is_rejected_whatever_the_tolerance() -> None:
    text = unsigned(claims(iat=NOW_S + 5, exp=NOW_S + 5))
    assert "before it begins" in str(rejection(text, clock_skew_ms=60_000))


def test_the_tolerance_is_in_milliseconds() -> None:
    text = unsigned(claims(iat=NOW_S + 1, exp=NOW_S + 2))
    assert UnsecuredTokens(UnsecuredRules(clock_skew_ms=1000)).validate(text, now_ms=NOW_MS).principal_name == "alice"
    assert "future" in str(rejection(text, clock_skew_ms=999))


def test_a_scope_that_is_required_and_lacking_is_named_to_the_client() -> None:
    rules: dict[str, Any] = {"required_scope": ("read", "write")}
    error = rejection(unsigned(claims(scope=["write"])), **rules)
    assert (error.status, error.scope) == ("insufficient_scope", "[read, write]")
    # As in Kafka, a text is one scope.
    UnsecuredTokens(UnsecuredRules(required_scope=("read",))).validate(unsigned(claims(scope="read")), now_ms=NOW_MS)
    assert rejection(unsigned(claims(scope="read write")), **rules).status == "insufficient_scope"
    UnsecuredTokens(UnsecuredRules(**rules)).validate(unsigned(claims(scope=["read", "write", "x"])), now_ms=NOW_MS)


def test_the_options_of_the_jaas_configuration() -> None:
    assert UnsecuredRules.of({}) == UnsecuredRules()
    rules = UnsecuredRules.of(
        {
            "unsecuredValidatorPrincipalClaimName": " name ",
            "unsecuredValidatorScopeClaimName": "scp",
            "unsecuredValidatorRequiredScope": " read  write ",
            "unsecuredValidatorAllowableClockSkewMs": "3000",
            "unsecuredLoginStringClaim_sub": "admin",
        }
    )
    assert rules == UnsecuredRules("name", "scp", ("read", "write"), 3000)


@pytest.mark.parametrize("text", ["-1", "3s", "٣", "1" * 11])
def test_a_tolerance_that_is_no_number_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="unsecuredValidatorAllowableClockSkewMs"):
        UnsecuredRules.of({"unsecuredValidatorAllowableClockSkewMs": text})


@given(st.text() | st.dictionaries(st.sampled_from(["sub", "exp", "iat"]), st.none() | st.text()).map(unsigned))
def test_no_text_makes_the_validator_fail(text: str) -> None:
    with suppress(TokenRejected):
        assert UnsecuredTokens().validate(text, now_ms=NOW_MS).principal_name
