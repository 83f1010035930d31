"""The topology descriptions of streams groups (KIP-1331), which a broker keeps in memory, as Kafka's
`InMemoryTopologyDescriptionPlugin`.

It has one description of a group, the last one. They are lost when the broker stops, or when another one coordinates
the group; then they are requested again.
"""

from __future__ import annotations

from typing import Final

import attrs

MAX_BYTES: Final = 64 << 20
"""The maximum size of all descriptions together. Kafka's plugin has no bound."""


@attrs.frozen
class StoredDescription:
    """`encoded` is a TopologyDescription of StreamsGroupTopologyDescriptionUpdate v0."""

    topology_epoch: int
    encoded: bytes


@attrs.define(eq=False)
class DescriptionStore:
    """The descriptions of all groups that this broker coordinates, by group id."""

    max_bytes: int = MAX_BYTES
    _stored: dict[str, StoredDescription] = attrs.field(init=False, factory=dict)
    size: int = attrs.field(init=False, default=0)
    """The size of all descriptions, in bytes."""

    def __len__(self) -> int:
        return len(self._stored)

    def find(self, group_id: str) -> StoredDescription | None:
        return self._stored.get(group_id)

    def has_room_for(self, group_id: str, encoded: bytes) -> bool:
        """True if there is room for the description, which replaces the group's former one."""
        return self.size - self._size_of(group_id) + len(encoded) <= self.max_bytes

    def put(self, group_id: str, description: StoredDescription) -> None:
        self.forget(group_id)
        self._stored[group_id] = description
        self.size += len(description.encoded)

    def forget(self, group_id: str) -> None:
        self.size -= self._size_of(group_id)
        self._stored.pop(group_id, None)

    def _size_of(self, group_id: str) -> int:
        known = self._stored.get(group_id)
        return 0 if known is None else len(known.encoded)
