"""Signed tokens (KIP-768): the signature is verified, and the claims are checked against the listener's settings.

The rules are those of Kafka's BrokerJwtValidator, which uses the library jose4j:

    signature     by a key of the set that the header names; see `keys.py` for the algorithms
    exp, iat      must be there; exp not in the past, and after iat and nbf
    nbf           not in the future
    aud           one of sasl.oauthbearer.expected.audience; without that setting a token must not have one
    iss           sasl.oauthbearer.expected.issuer, if that is set
    sub           a text: the name of the principal; the claim's name is sasl.oauthbearer.sub.claim.name
    scope         may be absent; texts that are not empty, and none of them twice

Times have sasl.oauthbearer.clock.skew.seconds of tolerance. In addition, iat must not be in the future: that shows that
the issuer's clock is wrong.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import attrs

from kwire.security.oauth.keys import ALGORITHMS, KeySet
from kwire.security.oauth.token import AcceptedToken, CompactToken, TokenRejected, principal_name, shown

MAX_TIME_S: Final = (1 << 53) - 1
"""The largest integer that every JSON parser represents exactly. A number with an exponent may be infinite."""


class KeyHolder(Protocol):
    """Holds the current keys."""

    @property
    def keys(self) -> KeySet: ...

    @property
    def trouble(self) -> str | None:
        """The reason why there are no keys yet; None if there are keys."""
        ...

    def note_unknown(self, kid: str | None) -> None:
        """Records that a token is signed with an unknown key, which may be a new one."""
        ...


@attrs.frozen
class TokenRules:
    """The rules for the claims of a token. `expected_audience` may be empty, and `expected_issuer` None."""

    clock_skew_s: int = 30
    expected_audience: tuple[str, ...] = ()
    expected_issuer: str | None = None
    scope_claim: str = "scope"
    sub_claim: str = "sub"


@attrs.define(eq=False)
class SignedTokens:
    """A `TokenValidator`."""

    holder: KeyHolder
    rules: TokenRules = attrs.field(factory=TokenRules)

    def validate(self, token: str, *, now_ms: int) -> AcceptedToken:
        """Raises TokenRejected."""
        compact = CompactToken.parse(token)
        self._check_signature(compact)
        return _accepted(compact.claims(), self.rules, now_ms / 1000)

    def _check_signature(self, token: CompactToken) -> None:
        alg, kid = token.header.get("alg"), token.header.get("kid")
        if not isinstance(alg, str) or alg not in ALGORITHMS:
            raise TokenRejected(f"the token is signed with the algorithm {shown(alg)}, which is not accepted")
        if kid is not None and not isinstance(kid, str):
            raise TokenRejected("the token names its key with something that is not a text")
        if "crit" in token.header:
            raise TokenRejected("the token demands extensions that are not known (crit)")
        keys = self.holder.keys
        candidates = keys.candidates(alg, kid)
        if not candidates:
            self.holder.note_unknown(kid)
            trouble = self.holder.trouble
            if trouble is not None:
                raise TokenRejected(f"there are no keys to check it with: {trouble}")
            raise TokenRejected(f"no known key for {alg} has the id {shown(kid)} that the token names")
        if not any(keys.verifies(key, alg, token.signed, token.signature) for key in candidates):
            raise TokenRejected(f"the signature is not that of the key {shown(kid)}")


def _accepted(claims: dict[str, Any], rules: TokenRules, now_s: float) -> AcceptedToken:
    expires_at_s = _check_times(claims, rules.clock_skew_s, now_s)
    _check_audience(claims, rules.expected_audience)
    if rules.expected_issuer is not None and claims.get("iss") != rules.expected_issuer:
        raise TokenRejected(f"it was issued by {shown(claims.get('iss'))}, not by {shown(rules.expected_issuer)}")
    _check_scope(claims.get(rules.scope_claim), rules.scope_claim)
    return AcceptedToken(principal_name(claims, rules.sub_claim), int(expires_at_s * 1000))


def _check_times(claims: dict[str, Any], skew_s: int, now_s: float) -> float:
    """Returns the time at which the token expires, in seconds since the epoch."""
    expires, issued, begins = (seconds(claims, name) for name in ("exp", "iat", "nbf"))
    if expires is None or issued is None:
        raise TokenRejected(f"the claim {'exp' if expires is None else 'iat'} is missing")
    if now_s - skew_s >= expires:
        raise TokenRejected(f"it expired {now_s - expires:.0f} s ago")
    if max(issued, begins or 0) > expires:
        raise TokenRejected("it expires before it begins")
    if begins is not None and now_s + skew_s < begins:
        raise TokenRejected(f"it is not valid for another {begins - now_s:.0f} s")
    if now_s + skew_s < issued:
        raise TokenRejected(f"it was issued {issued - now_s:.0f} s from now: one of the clocks is wrong")
    return expires


def _check_audience(claims: dict[str, Any], expected: tuple[str, ...]) -> None:
    claim = claims.get("aud")
    audience = [claim] if isinstance(claim, str) else claim
    if audience is None and not expected:
        return
    if not isinstance(audience, list) or not all(isinstance(it, str) for it in audience):
        raise TokenRejected(f"it is for {shown(claim)}, not for {shown(list(expected))}")
    if not expected:
        raise TokenRejected(f"it is for {shown(claim)}, and sasl.oauthbearer.expected.audience is not set")
    if not set(expected) & set(audience):
        raise TokenRejected(f"it is for {shown(claim)}, not for {shown(list(expected))}")


def _check_scope(claim: object, name: str) -> None:
    scopes = [claim] if isinstance(claim, str) else claim
    if not isinstance(scopes, list):
        return
    texts = [scope.strip() for scope in scopes if isinstance(scope, str)]
    if len(texts) != len(scopes) or not all(texts):
        raise TokenRejected(f"the claim {name} has something that is no scope: {shown(claim)}")
    if len(set(texts)) != len(texts):
        raise TokenRejected(f"the claim {name} has the same scope twice: {shown(claim)}")


def seconds(claims: dict[str, Any], name: str) -> float | None:
    """Returns a time among the claims, in seconds since the epoch; None if it is absent. Raises TokenRejected."""
    value = claims.get(name)
    if value is None:
        return None
    # In Python a bool is an int.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_TIME_S:
        raise TokenRejected(f"the claim {name} is not a time: {shown(value)}")
    return value
