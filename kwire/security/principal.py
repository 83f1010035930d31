"""The identity behind a connection: Kafka's KafkaPrincipal."""

from __future__ import annotations

from typing import Final

import attrs

USER: Final = "User"


@attrs.frozen
class Principal:
    """For example User:alice. Equal principals have the same permissions."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""A client that has not authenticated, on a listener that does not require it."""
