"""The principal of a connection (Kafka's KafkaPrincipal), and the host from which it connects."""

from __future__ import annotations

from typing import Final

import attrs

USER: Final = "User"


@attrs.frozen
class Principal:
    """A principal, for example User:alice. Equal principals have the same permissions."""

    type: str
    name: str
    token_authenticated: bool = attrs.field(default=False, eq=False)
    """True if the client authenticated with a delegation token. It has its owner's permissions, but may not request
    another token."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""A client that has not authenticated, on a listener that does not require it."""


@attrs.frozen(cache_hash=True)
class Requester:
    """The principal of a request, and the address of its host. Permissions depend on both."""

    principal: Principal
    host: str


def parse_principals(text: str) -> frozenset[str]:
    """Returns the principals in a text like `User:alice; User:CN=node1,OU=ops`, the format of super.users.

    Raises ValueError for a principal without a type.
    """
    principals = frozenset(filter(None, map(str.strip, text.split(";"))))
    for principal in sorted(principals):
        if ":" not in principal:
            raise ValueError(
                f"expected a string in format principalType:principalName but got {principal}: separate several "
                "principals with semicolons, as in User:alice;User:bob"
            )
    return principals
