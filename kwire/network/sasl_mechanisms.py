"""Makes the mechanisms of a SASL listener out of its configuration, and the sessions of its connections.

A mechanism is registered here, and its name in `kwire.config.sasl.MECHANISMS`. Modules of mechanisms are imported when
a listener enables them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from kwire.clock import Clock
from kwire.config.sasl import MechanismSettings
from kwire.security.sasl.exchange import SaslSession, ServerMechanism

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.security.sasl.scram import ScramCredential

Settings = tuple[MechanismSettings, ...]


@attrs.frozen
class Ingredients:
    """What a mechanism is made of. `secret` is random, and the same for all mechanisms of this broker."""

    broker: Broker
    listener_name: str
    settings: MechanismSettings
    secret: bytes = attrs.field(repr=False)


NewMechanism = Callable[[Ingredients], ServerMechanism]


def _plain(of: Ingredients) -> ServerMechanism:
    from kwire.security.sasl.plain import Plain, users_of

    assert of.settings.module is not None, "sasl_settings has seen to it"
    return Plain(users_of(of.settings.module.options), secret=of.secret)


def _scram(of: Ingredients) -> ServerMechanism:
    from kwire.security.sasl.scram import SCRAM_MECHANISMS, Scram

    mechanism = SCRAM_MECHANISMS[of.settings.name]
    clock = of.broker.clock

    def find(name: str, *, is_token: bool) -> ScramCredential | None:
        return None if is_token else credential_of_user(of.broker, name, mechanism.number)

    return Scram(mechanism, find, secret=of.secret, new_nonce=lambda: random_bytes(clock).hex())


MECHANISMS: Final[Mapping[str, NewMechanism]] = {"PLAIN": _plain, "SCRAM-SHA-256": _scram, "SCRAM-SHA-512": _scram}


def credential_of_user(broker: Broker, name: str, mechanism: int) -> ScramCredential | None:
    """As the metadata have it now, so a change is in force for the next login."""
    from kwire.security.sasl.scram import ScramCredential

    record = broker.metadata.image.access.scram_credentials.get((name, mechanism))
    if record is None:
        return None
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)


def random_bytes(clock: Clock) -> bytes:
    """32 bytes that nobody can guess."""
    return clock.uuid() + clock.uuid()


class SaslListener:
    """Begins the sessions of one listener, with the mechanisms that are configured at that time."""

    def __init__(self, broker: Broker, name: str, secret: bytes) -> None:
        self._broker = broker
        self._name = name
        self._secret = secret
        self._settings: Settings = ()
        self._mechanisms: Mapping[str, ServerMechanism] = {}
        self._max_reauth_ms: Mapping[str, int] = {}
        self._build()

    def new_session(self) -> SaslSession:
        if self._broker.config.sasl[self._name] is not self._settings:
            self._build()
        return SaslSession(self._mechanisms, self._max_reauth_ms)

    def _build(self) -> None:
        self._settings = settings = self._broker.config.sasl[self._name]
        self._mechanisms = {
            it.name: MECHANISMS[it.name](Ingredients(self._broker, self._name, it, self._secret)) for it in settings
        }
        self._max_reauth_ms = {it.name: it.max_reauth_ms for it in settings}
