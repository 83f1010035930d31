"""Unsigned tokens (KIP-255), which anybody can make: for tests and development, and only if configured by name.

The rules are those of Kafka's OAuthBearerUnsecuredValidatorCallbackHandler, whose options in the listener's JAAS
configuration begin with unsecuredValidator:

    PrincipalClaimName     the claim with the name of the principal; sub
    ScopeClaimName         the claim with the scopes, a text or a list of texts; scope
    RequiredScope          scopes that a token must have, with spaces between them
    AllowableClockSkewMs   the maximum difference of the clocks; 0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from kwire.security.oauth.signed import seconds
from kwire.security.oauth.token import INSUFFICIENT_SCOPE, AcceptedToken, CompactToken, TokenRejected, principal_name

_PREFIX: Final = "unsecuredValidator"


@attrs.frozen
class UnsecuredRules:
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> UnsecuredRules:
        """Returns the rules in options of the JAAS configuration. Raises ValueError with the option in its message."""

        def option(name: str, default: str) -> str:
            return options.get(_PREFIX + name, "").strip() or default

        skew = option("AllowableClockSkewMs", "0")
        if not skew.isdecimal() or not skew.isascii() or len(skew) > 10:
            raise ValueError(f"{_PREFIX}AllowableClockSkewMs is not a number of milliseconds: {skew!r}")
        return cls(
            option("PrincipalClaimName", "sub"),
            option("ScopeClaimName", "scope"),
            tuple(option("RequiredScope", "").split()),
            int(skew),
        )


@attrs.define(eq=False)
class UnsecuredTokens:
    """A `TokenValidator`."""

    rules: UnsecuredRules = attrs.field(factory=UnsecuredRules)

    def validate(self, token: str, *, now_ms: int) -> AcceptedToken:
        """Raises TokenRejected."""
        compact = CompactToken.parse(token)
        if compact.header.get("alg") != "none" or compact.signature:
            raise TokenRejected("the token is signed, and only unsigned ones are accepted here")
        claims, rules = compact.claims(), self.rules
        principal = principal_name(claims, rules.principal_claim)
        expires, issued = seconds(claims, "exp"), seconds(claims, "iat")
        if expires is None:
            raise TokenRejected("the claim exp is missing")
        if issued is not None and 1000 * issued > now_ms + rules.clock_skew_ms:
            raise TokenRejected("it was issued in the future: one of the clocks is wrong")
        if now_ms - rules.clock_skew_ms >= 1000 * expires:
            raise TokenRejected("it has expired")
        if issued is not None and expires <= issued:
            raise TokenRejected("it expires before it begins")
        lacking = set(rules.required_scope) - _scopes(claims.get(rules.scope_claim))
        if lacking:
            raise TokenRejected(
                f"it lacks the scope {' '.join(sorted(lacking))}",
                status=INSUFFICIENT_SCOPE,
                scope=f"[{', '.join(rules.required_scope)}]",
            )
        return AcceptedToken(principal, round(expires * 1000))


def _scopes(claim: Any) -> set[str]:
    """Returns the scopes of a claim. A text is one scope, even if it has spaces, as in Kafka."""
    if isinstance(claim, str):
        return {claim.strip()}
    if isinstance(claim, list):
        return {scope.strip() for scope in claim if isinstance(scope, str)}
    return set()
