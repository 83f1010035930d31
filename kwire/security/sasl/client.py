"""The client's side of SASL: a mechanism and a JAAS login module make an exchange that answers a broker's challenges.

`respond(None)` returns the first bytes; after that each challenge is passed to it, until it returns None: the exchange
is complete, and the broker has proved itself if it had to. It raises ValueError for bytes that only an impostor sends.
"""

from __future__ import annotations

from typing import Final, Protocol

from kwire.security.sasl.jaas import MODULES, JaasError, LoginModule
from kwire.security.sasl.plain import PLAIN, PlainClient
from kwire.security.sasl.scram import SCRAM_MECHANISMS, TOKEN_AUTH, ScramClient

CLIENT_MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)


class ClientExchange(Protocol):
    @property
    def mechanism(self) -> str: ...

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Returns the first bytes if `challenge` is None, then the answer to each challenge; None at the end."""
        ...


def client_exchange(mechanism: str, module: LoginModule, *, nonce: str) -> ClientExchange:
    """Returns the exchange of one login. `nonce` is random printable text without commas, a new one for each login.

    Raises JaasError if the mechanism is unknown, or the login module is for another one or lacks an option.
    """
    if mechanism not in CLIENT_MECHANISMS:
        raise JaasError(f"the mechanism {mechanism} is none of {', '.join(CLIENT_MECHANISMS)}")
    if module.name != MODULES[mechanism]:
        raise JaasError(f"the login module of {mechanism} is {MODULES[mechanism]}, and not {module.name}")
    name, password = _option(module, "username"), _option(module, "password")
    if mechanism == PLAIN:
        return PlainClient(name, password)
    is_token = module.options.get(TOKEN_AUTH, "").lower() == "true"
    return ScramClient(SCRAM_MECHANISMS[mechanism], name, password, nonce, is_token)


def _option(module: LoginModule, name: str) -> str:
    value = module.options.get(name)
    if not value:
        raise JaasError(f'the login module has no {name}: add {name}="..." before the semicolon')
    return value
