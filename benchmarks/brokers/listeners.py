"""Listeners beside PLAINTEXT, each named after its security protocol, and the settings that they need.

Apache Kafka and kwire have the same settings and the same certificate: ECDSA, P-256.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from benchmarks.load.connection import LOOPBACK
from kwire.security.tls.dev_certificates import DevAuthority

PLAINTEXT, SSL, SASL_PLAINTEXT = "PLAINTEXT", "SSL", "SASL_PLAINTEXT"

_SCRAM = "SCRAM-SHA-256"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_SETTINGS = {
    SSL: {"ssl.keystore.type": "PEM", "ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.3"},
    SASL_PLAINTEXT: {
        "sasl.enabled.mechanisms": _SCRAM,
        f"listener.name.sasl_plaintext.{_SCRAM.lower()}.sasl.jaas.config": _SCRAM_LOGIN,
    },
}


def addresses(ports: Mapping[str, int]) -> str:
    """The value of `listeners`, from ports by listener."""
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items())


def settings(names: Collection[str], root: Path) -> dict[str, str]:
    """Returns the settings of these listeners. The keystore is written to `root`."""
    found: dict[str, str] = {}
    for name in names:
        found |= _SETTINGS[name]
    if SSL in names:
        keystore = root / "server.pem"
        keystore.write_bytes(_keystore())
        found["ssl.keystore.location"] = str(keystore)
    return found


@cache
def _keystore() -> bytes:
    return DevAuthority.new().server()
