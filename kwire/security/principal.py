"""Who is behind a connection: Kafka's KafkaPrincipal, and where that connects from."""

from __future__ import annotations

from typing import Final

import attrs

USER: Final = "User"


@attrs.frozen
class Principal:
    """For example User:alice. Equal principals have the same permissions."""

    type: str
    name: str
    token_authenticated: bool = attrs.field(default=False, eq=False)
    """Whether a delegation token was presented. Its owner may do the same, except ask for another token."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""A client that has not authenticated, on a listener that does not require it."""


@attrs.frozen(cache_hash=True)
class Requester:
    """Who asks for something, and the address of the host that asks: what permissions depend on."""

    principal: Principal
    host: str


def parse_principals(text: str) -> frozenset[str]:
    """The principals in a text like `User:alice; User:CN=node1,OU=ops`, which is how super.users lists them.

    Raises ValueError for one that is without a type.
    """
    principals = frozenset(filter(None, map(str.strip, text.split(";"))))
    for principal in sorted(principals):
        if ":" not in principal:
            raise ValueError(
                f"expected a string in format principalType:principalName but got {principal}: separate several "
                "principals with semicolons, as in User:alice;User:bob"
            )
    return principals
