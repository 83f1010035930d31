"""Makes the mechanisms of a SASL listener from its configuration, and the sessions of its connections.

A mechanism is registered here, and its name in `kwire.config.sasl.MECHANISMS`. Modules of mechanisms are imported when
a listener enables them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from kwire.config.sasl import MechanismSettings
from kwire.runtime.clock import secret_of
from kwire.runtime.loop import StartSoon
from kwire.security.sasl.exchange import SaslSession, ServerMechanism

if TYPE_CHECKING:
    from kwire.config.oauth import SignedTokenConfig
    from kwire.network.jwks import FreshKeys
    from kwire.network.services import Node
    from kwire.security.oauth.signed import KeyHolder
    from kwire.security.oauth.unsecured import UnsecuredRules
    from kwire.security.sasl.scram import ScramCredential

log = logging.getLogger(__name__)

Settings = tuple[MechanismSettings, ...]


@attrs.frozen
class Ingredients:
    """The arguments of a mechanism. `secret` is the same for all mechanisms of this broker."""

    node: Node
    listener_name: str
    settings: MechanismSettings
    secret: bytes = attrs.field(repr=False)
    keys_for: Callable[[SignedTokenConfig], KeyHolder]
    """Returns the keys of tokens, which are refreshed."""


NewMechanism = Callable[[Ingredients], ServerMechanism]


def _plain(of: Ingredients) -> ServerMechanism:
    from kwire.security.sasl.plain import Plain, users_of

    assert of.settings.module is not None, "sasl_settings has seen to it"
    return Plain(users_of(of.settings.module.options), secret=of.secret)


def _scram(of: Ingredients) -> ServerMechanism:
    from kwire.security.sasl.scram import SCRAM_MECHANISMS, Scram

    mechanism = SCRAM_MECHANISMS[of.settings.name]
    clock = of.node.clock

    def find(name: str, *, is_token: bool) -> ScramCredential | None:
        if is_token:
            tokens = of.node.metadata.delegation_tokens
            return None if tokens is None else tokens.credential(name, mechanism, now_ms=clock.now_ms())
        return credential_of_user(of.node, name, mechanism.number)

    return Scram(mechanism, find, secret=of.secret, new_nonce=lambda: secret_of(clock).hex())


def _oauthbearer(of: Ingredients) -> ServerMechanism:
    from kwire.config.oauth import SignedTokenConfig
    from kwire.security.oauth.signed import SignedTokens
    from kwire.security.oauth.unsecured import UnsecuredTokens
    from kwire.security.sasl.oauthbearer import OAuthBearer

    tokens = of.settings.tokens
    assert tokens is not None, "sasl_settings has seen to it"
    if isinstance(tokens, SignedTokenConfig):
        return OAuthBearer(SignedTokens(of.keys_for(tokens), tokens.rules))
    return OAuthBearer(UnsecuredTokens(tokens))


MECHANISMS: Final[Mapping[str, NewMechanism]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
    "OAUTHBEARER": _oauthbearer,
}


def warnings_about(tokens: SignedTokenConfig | UnsecuredRules) -> Iterator[str]:
    """Yields a warning for each insecure setting that is allowed, as in Kafka, but seldom intended."""
    from kwire.config.oauth import SignedTokenConfig

    if not isinstance(tokens, SignedTokenConfig):
        yield "accepts unsigned tokens, which anybody can make: it is for tests only"
        return
    if not tokens.rules.expected_audience:
        yield "accepts tokens that are for nobody in particular: set sasl.oauthbearer.expected.audience"
    if tokens.rules.expected_issuer is None:
        yield "does not look at who issued a token: set sasl.oauthbearer.expected.issuer"
    if tokens.jwks_url.lower().startswith("http:"):
        yield "gets the keys of tokens without encryption: who changes them on the way can be anybody, so use https"


def credential_of_user(node: Node, name: str, mechanism: int) -> ScramCredential | None:
    """Returns the user's credential in the current metadata, so that a change applies to the next login."""
    from kwire.security.sasl.scram import ScramCredential

    record = node.metadata.image.access.scram_credentials.get((name, mechanism))
    if record is None:
        return None
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)


class SaslListener:
    """Begins the sessions of one listener, with the mechanisms that are configured at that time.

    Raises ConfigError if the keys of OAUTHBEARER's tokens are in a file that is missing or unusable. `start` must be
    called when the event loop runs: from then on keys are refreshed.
    """

    def __init__(self, node: Node, name: str, secret: bytes) -> None:
        self._node = node
        self._name = name
        self._secret = secret
        self._settings: Settings = ()
        self._mechanisms: Mapping[str, ServerMechanism] = {}
        self._max_reauth_ms: Mapping[str, int] = {}
        self._keys: dict[SignedTokenConfig, FreshKeys] = {}
        self._start_soon: StartSoon | None = None
        self._logged_warnings: set[str] = set()
        self._build()

    def start(self, start_soon: StartSoon) -> None:
        self._start_soon = start_soon
        for keys in self._keys.values():
            start_soon(partial(keys.run, self._node.clock.monotonic_ms))

    def new_session(self) -> SaslSession:
        if self._node.config.sasl[self._name] is not self._settings:
            self._build()
        return SaslSession(self._mechanisms, self._max_reauth_ms)

    def _build(self) -> None:
        self._settings = settings = self._node.config.sasl[self._name]
        self._mechanisms = {
            it.name: MECHANISMS[it.name](Ingredients(self._node, self._name, it, self._secret, self._keys_for))
            for it in settings
        }
        self._max_reauth_ms = {it.name: it.max_reauth_ms for it in settings}
        for tokens in (it.tokens for it in settings if it.tokens is not None):
            for warning in warnings_about(tokens):
                if warning not in self._logged_warnings:
                    log.warning("listener %s %s", self._name, warning)
                    self._logged_warnings.add(warning)

    def _keys_for(self, config: SignedTokenConfig) -> KeyHolder:
        keys = self._keys.get(config)
        if keys is None:
            from kwire.network.jwks import FreshKeys

            keys = self._keys[config] = FreshKeys(config, self._name)
            monotonic_ms = self._node.clock.monotonic_ms
            if self._start_soon is None:
                keys.check(monotonic_ms())
            else:  # OAUTHBEARER was enabled in the running broker.
                self._start_soon(partial(keys.run, monotonic_ms))
        return keys.refresh
