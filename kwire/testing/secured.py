"""The settings that `kwire.testing.Broker` adds for a listener with encryption or authentication.

The test's own settings override these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kwire_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)

from kwire.metadata.controller.access.scram_users import alter_scram_credentials
from kwire.node.broker import Broker
from kwire.runtime.clock import secret_of
from kwire.runtime.futures import at_once
from kwire.security.sasl.jaas import PLAIN_MODULE
from kwire.security.sasl.plain import PLAIN, USER_PREFIX
from kwire.security.sasl.scram import MIN_ITERATIONS, SCRAM_MECHANISMS, salt_from
from kwire.security.tls.dev_certificates import LOCAL_HOSTS, DevAuthority

_TO_ESCAPE: Final = re.compile(r'[\x00-\x1f"\\]')
_BEGIN_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"


def settings_of_users(users: Mapping[str, str], protocol: str) -> dict[str, str]:
    """Returns the settings for users. Raises ValueError for an empty name or password, which no client can send."""
    for name, password in users.items():
        if not name or not password:
            raise ValueError(f"user {name!r} needs a name and a password")
    options = " ".join(f"{_in_quotes(USER_PREFIX + name)}={_in_quotes(password)}" for name, password in users.items())
    return {
        "sasl.enabled.mechanisms": ",".join((PLAIN, *SCRAM_MECHANISMS)),
        f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {options};",
    }


def _in_quotes(text: str) -> str:
    """Returns the text in quotes, in the syntax of JAAS (kwire.security.sasl.jaas)."""
    return '"' + _TO_ESCAPE.sub(lambda found: f"\\{ord(found[0]):03o}", text) + '"'


def settings_of_tls(authority: DevAuthority, host: str) -> dict[str, str]:
    """Returns the settings with a certificate for this host and for localhost, without a file."""
    pem = authority.server(tuple(dict.fromkeys((host, *LOCAL_HOSTS)))).decode()
    where = pem.index(_BEGIN_CERTIFICATE)
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": pem[:where],
        "ssl.keystore.certificate.chain": pem[where:],
    }


def put_users(broker: Broker, users: Mapping[str, str]) -> None:
    """Adds the users to the metadata, for SCRAM."""
    for name, password in users.items():
        for mechanism in SCRAM_MECHANISMS.values():  # a request may have a user only once
            salt = salt_from(secret_of(broker.clock))
            salted = mechanism.salted_password(password, salt, MIN_ITERATIONS)
            upsertion = ScramCredentialUpsertion(name, mechanism.number, MIN_ITERATIONS, salt, salted)
            request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
            (result,) = at_once(broker.metadata.change(alter_scram_credentials, request)).results
            if result.error_code:
                raise ValueError(f"user {name!r} cannot be added: {result.error_message}")
