"""The addresses of `listeners` and `advertised.listeners`: name://host:port, several separated by commas.

`listener.security.protocol.map` gives each name its security protocol; the names of the four protocols map to
themselves. An empty host means every interface. Listeners of `controller.listener.names` are left out: they belong to
Kafka's controllers, and kwire has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import attrs
from kwire_protocol.kafka_error import quoted

from kwire.config.definition import ConfigError

_LISTENER: Final = re.compile(r"([^:/]*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)", re.ASCII)
_ADDRESS: Final = re.compile(r"\[?([0-9a-zA-Z\-%._:]+)\]?:([0-9]+)", re.ASCII)
_WILDCARDS: Final = ("", "0.0.0.0", "::")
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MAX_PORT: Final = 65535
DEFAULT_PROTOCOL: Final = "PLAINTEXT"


@attrs.frozen
class Listener:
    """`host` is "" for every interface; `port` 0 is any free one."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    @property
    def has_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def is_wildcard(self) -> bool:
        return self.host in _WILDCARDS

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """Returns the security protocol of each listener name. Raises ConfigError."""
    protocols = {protocol: protocol for protocol in SECURITY_PROTOCOLS}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = pair.partition(":")
        protocol = protocol.strip().upper()
        if not colon or protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map has {quoted(pair)}: "
                f"an entry is a listener name, a colon and one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name.strip().upper()] = protocol
    return protocols


def parse_address(configuration: str, text: str) -> Listener:
    """Parses the address host:port. Returns a listener with the configuration's name. Raises ConfigError."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match[2]) > MAX_PORT:
        raise ConfigError(
            f"{configuration} is {quoted(text)}: an address is written host:port, with a port from 0 to {MAX_PORT}"
        )
    return Listener(configuration, match[1], int(match[2]))


def parse_listeners(
    configuration: str, texts: Iterable[str], protocols: Mapping[str, str], controllers: Iterable[str] = ()
) -> tuple[Listener, ...]:
    """Returns the listeners in `texts`, the value of `configuration`. Raises ConfigError."""
    left_out = {name.upper() for name in controllers}
    listeners: list[Listener] = []
    for text in texts:
        match = _LISTENER.fullmatch(text)
        if match is None:
            raise ConfigError(f"{configuration} has {quoted(text)}: a listener is written name://host:port")
        name, host, port = match[1].upper(), match[2], int(match[3])
        if name in left_out:
            continue
        if not 0 <= port <= MAX_PORT:
            raise ConfigError(f"{configuration} has {quoted(text)}: a port is a number from 0 to {MAX_PORT}")
        if name not in protocols:
            raise ConfigError(
                f"{configuration} has {quoted(text)}: give the name {name} a protocol in "
                f"listener.security.protocol.map, such as {name}:PLAINTEXT"
            )
        listeners.append(Listener(name, host, port, protocols[name]))
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        raise ConfigError(f"{configuration} has several listeners with the same name: {', '.join(names)}")
    return tuple(listeners)


def check_bindable(listeners: tuple[Listener, ...]) -> None:
    """Raises ConfigError unless there is a listener, and all addresses differ."""
    if not listeners:
        raise ConfigError("listeners has no listener for clients")
    fixed = [(listener.host, listener.port) for listener in listeners if listener.port]
    if len(set(fixed)) != len(fixed):
        raise ConfigError(
            f"listeners has several with the same address: {', '.join(str(listener) for listener in listeners)}"
        )


def check_advertisable(advertised: tuple[Listener, ...], listeners: tuple[Listener, ...]) -> None:
    """Raises ConfigError unless every advertised listener has a usable address and exists."""
    known = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.host in ("0.0.0.0", "::"):
            raise ConfigError(
                f"advertised.listeners has {listener}: clients cannot connect to {listener.host}, "
                "so give a host name or an address at which they can reach the broker"
            )
        if listener.name not in known:
            raise ConfigError(
                f"advertised.listeners has {listener}, whose name is not in listeners: {', '.join(sorted(known))}"
            )


def inter_broker_listener(name: str | None, protocol: str | None, advertised: tuple[Listener, ...]) -> str:
    """Returns the name of the advertised listener at which other brokers reach this one. Raises ConfigError.

    `name` is inter.broker.listener.name, and `protocol` is security.inter.broker.protocol; None if they are not set.
    """
    known = [listener.name for listener in advertised]
    if name is not None and protocol is not None:
        raise ConfigError("inter.broker.listener.name and security.inter.broker.protocol are both set: set one of them")
    configuration = "security.inter.broker.protocol" if name is None else "inter.broker.listener.name"
    wanted = (name or protocol or DEFAULT_PROTOCOL).upper()
    if wanted in known:
        return wanted
    if name is None and protocol is None:
        # Kafka refuses this. A broker without peers does not need the listener, and here one listener is enough.
        return known[0]
    raise ConfigError(
        f"{configuration} is {quoted(name or protocol or '')}, and the advertised listeners are {', '.join(known)}: "
        "name one of them"
    )
