"""The connection to ZooKeeper: `zookeeper.connect` and related configurations, with the names of Kafka 3."""

from __future__ import annotations

import re
from typing import Final

import attrs
from kwire_protocol.kafka_error import quoted

from kwire.config.definition import ConfigError

_SERVER: Final = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[0-9a-zA-Z\-._]+)(?::([0-9]+))?", re.ASCII)
_CHROOT: Final = re.compile(r"(/[^/\s\x00-\x1f]+)*", re.ASCII)
DEFAULT_PORT: Final = 2181


@attrs.frozen
class ZooKeeperConfig:
    """`servers` as host:port, at least one. `chroot` is "" or the path of all of kwire's nodes."""

    servers: tuple[str, ...]
    chroot: str
    session_timeout_ms: int
    connection_timeout_ms: int
    set_acl: bool
    """True if only clients with `digest` may change the nodes, or read the metadata."""
    digest: str | None = attrs.field(repr=False)
    """user:password"""
    ssl_client_enable: bool
    ssl_keystore_location: str | None
    """A PEM file with this node's certificate and private key."""
    ssl_keystore_password: str | None = attrs.field(repr=False)
    ssl_truststore_location: str | None
    """A PEM file with certificates of authorities; None: those of the system."""
    ssl_checks_host_name: bool

    @classmethod
    def of(
        cls,
        *,
        connect: str,
        session_timeout_ms: int,
        connection_timeout_ms: int | None,
        set_acl: bool,
        digest: str | None,
        ssl_client_enable: bool,
        ssl_keystore_location: str | None,
        ssl_keystore_password: str | None,
        ssl_truststore_location: str | None,
        ssl_endpoint_identification_algorithm: str,
    ) -> ZooKeeperConfig:
        """Returns the configuration. `connect` is host:port,host:port/chroot. Raises ConfigError."""
        servers, chroot = parse_connect(connect)
        if digest is not None and not re.fullmatch(r"[^:]+:.+", digest, re.DOTALL):
            raise ConfigError("kwire.zookeeper.digest is not of the form user:password")
        if set_acl and digest is None:
            raise ConfigError("zookeeper.set.acl needs kwire.zookeeper.digest: the user:password that gets access")
        return cls(
            servers=servers,
            chroot=chroot,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=connection_timeout_ms or session_timeout_ms,
            set_acl=set_acl,
            digest=digest,
            ssl_client_enable=ssl_client_enable,
            ssl_keystore_location=ssl_keystore_location,
            ssl_keystore_password=ssl_keystore_password,
            ssl_truststore_location=ssl_truststore_location,
            ssl_checks_host_name=ssl_endpoint_identification_algorithm.upper() == "HTTPS",
        )


def parse_connect(text: str) -> tuple[tuple[str, ...], str]:
    """Returns the servers, each with its port, and the chroot. Raises ConfigError."""
    addresses, slash, path = text.partition("/")
    servers = []
    for address in addresses.split(","):
        match = _SERVER.fullmatch(address.strip())
        port = int(match[2] or DEFAULT_PORT) if match is not None else 0
        if match is None or not 0 < port < 65536:
            raise ConfigError(
                f"zookeeper.connect has {quoted(address)}: write host:port, several separated by commas, "
                "and after the last one a path such as /kafka if the cluster has one of its own"
            )
        servers.append(f"{match[1]}:{port}")
    chroot = f"{slash}{path}".rstrip("/")
    if not _CHROOT.fullmatch(chroot) or {".", ".."} & set(chroot.split("/")):
        raise ConfigError(f"zookeeper.connect has the path {quoted(chroot)}: write names separated by one slash each")
    return tuple(servers), chroot
