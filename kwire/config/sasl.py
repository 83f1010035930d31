"""The SASL settings of one listener: its mechanisms, their login modules, and the lifetime of sessions.

Kafka's names have two prefixes here: the usual listener.name.NAME., and the mechanism in lower case after it.

    listener.name.clients.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
    listener.name.clients.plain.sasl.jaas.config=...PlainLoginModule required user_alice="secret";
    listener.name.clients.scram-sha-256.connections.max.reauth.ms=3600000

Kafka also finds login modules in a JAAS file of its JVM, with a section for all mechanisms. Here sasl.jaas.config
without the mechanism takes its place, for the mechanism of its login module. SCRAM needs no login module: its users are
in the metadata log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
from kwire_protocol.kafka_error import quoted

from kwire.config.definition import ConfigError
from kwire.config.listeners import Listener
from kwire.config.reading import ConfigReader
from kwire.security.sasl.jaas import MODULES, JaasError, LoginModule, parse_jaas

if TYPE_CHECKING:
    from kwire.config.oauth import SignedTokenConfig
    from kwire.security.oauth.unsecured import UnsecuredRules

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The mechanisms that can be enabled; `kwire.network.sasl_mechanisms` makes each of them."""

_JAAS: Final = "sasl.jaas.config"
_MAX_REAUTH: Final = "connections.max.reauth.ms"
_OWN_HANDLERS: Final = {  # OAUTHBEARER has a choice; see `kwire.config.oauth`.
    "PLAIN": "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler",
}
_HANDLER: Final = "sasl.server.callback.handler.class"
_CLASSES_OF_LOGINS: Final = ("sasl.login.callback.handler.class", "sasl.login.class")


@attrs.frozen
class MechanismSettings:
    """The settings of a mechanism. `module` has the options of sasl.jaas.config; None if it has none and needs none."""

    name: str
    module: LoginModule | None
    max_reauth_ms: int
    """The maximum lifetime of a session in ms; with 0 a session lasts as long as the credentials."""
    tokens: SignedTokenConfig | UnsecuredRules | None = None
    """The tokens that OAUTHBEARER accepts; None for other mechanisms."""


def sasl_settings(read: ConfigReader, listener: Listener) -> tuple[MechanismSettings, ...]:
    """Returns the mechanisms of a listener, in the order of the configuration. Raises ConfigError."""
    of_listener = read.of_listener(listener.name)
    names = of_listener.names("sasl.enabled.mechanisms")
    _check_names(names, of_listener, listener)
    return tuple(_mechanism(of_listener, listener, name) for name in names)


def _check_names(names: tuple[str, ...], read: ConfigReader, listener: Listener) -> None:
    choice = f"set sasl.enabled.mechanisms to some of {', '.join(MECHANISMS)}"
    if not names:
        raise ConfigError(f"listener {listener} uses SASL, and no mechanism is enabled: {choice}")
    for name in names:
        if name == "GSSAPI" and "sasl.enabled.mechanisms" not in read.properties:
            raise ConfigError(
                f"listener {listener} uses SASL, and sasl.enabled.mechanisms is not set. Kafka's default is GSSAPI "
                f"(Kerberos), which kwire does not have: {choice}"
            )
        if name == "GSSAPI":
            raise ConfigError(
                f"listener {listener} has GSSAPI (Kerberos) in sasl.enabled.mechanisms, which kwire does not have: "
                f"{choice}"
            )
        if name not in MECHANISMS:
            raise ConfigError(
                f"listener {listener} has {quoted(name)} in sasl.enabled.mechanisms, which is no mechanism of kwire: "
                f"{choice}"
            )


def _mechanism(read: ConfigReader, listener: Listener, name: str) -> MechanismSettings:
    prefix = f"listener.name.{listener.name.lower()}.{name.lower()}."
    own = {key.removeprefix(prefix): text for key, text in read.properties.items() if key.startswith(prefix)}
    of_mechanism = ConfigReader({**read.properties, **own})
    _check_classes(of_mechanism, own, prefix, name)
    module = _login_module(read, own, prefix, listener, name)
    tokens: SignedTokenConfig | UnsecuredRules | None = None
    if name == "OAUTHBEARER":
        from kwire.config.oauth import read_oauth_config

        tokens = read_oauth_config(of_mechanism, own, listener, {} if module is None else module.options)
    return MechanismSettings(name, module, max(0, of_mechanism.int(_MAX_REAUTH)), tokens)


def _check_classes(read: ConfigReader, own: dict[str, str], prefix: str, name: str) -> None:
    handler = read.optional_text(_HANDLER) if name in _OWN_HANDLERS else None
    if handler and handler not in ({_OWN_HANDLERS[name]} if _HANDLER in own else _OWN_HANDLERS.values()):
        configuration = f"{prefix}{_HANDLER}" if _HANDLER in own else _HANDLER
        raise ConfigError(
            f"{configuration} is {quoted(handler)}: kwire runs no Java, so it can only be {_OWN_HANDLERS[name]}, which "
            "it is if it is not set"
        )
    for configuration in _CLASSES_OF_LOGINS:
        if own.get(configuration):
            raise ConfigError(
                f"{prefix}{configuration} is {quoted(own[configuration])}: kwire runs no Java, so take it away"
            )


def _login_module(
    read: ConfigReader, own: dict[str, str], prefix: str, listener: Listener, name: str
) -> LoginModule | None:
    wanted = MODULES[name]
    configuration, text = f"{prefix}{_JAAS}", own.get(_JAAS)
    if text is None:
        configuration, text = _JAAS, read.optional_text(_JAAS)
    module = None if text is None else _parsed(configuration, text)
    if module is not None and module.name != wanted:
        if configuration != _JAAS:
            raise ConfigError(f"{configuration} has the login module {module.name}: the one of {name} is {wanted}")
        module = None  # it is for another mechanism
    if name == "PLAIN":
        from kwire.security.sasl.plain import users_of

        example = f'{wanted} required user_alice="her-password";'
        if module is None:
            raise ConfigError(f"listener {listener} has no users for PLAIN: set {prefix}{_JAAS}={example}")
        if not users_of(module.options):
            raise ConfigError(f"{configuration} has no users: it has to be such as {example}")
    return module


def _parsed(configuration: str, text: str) -> LoginModule:
    try:
        return parse_jaas(text)
    except JaasError as error:
        raise ConfigError(f"{configuration} cannot be read: {error}") from None
