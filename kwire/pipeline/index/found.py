"""A record that a query found, in the index or in the part that is not indexed yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from kwire.pipeline.index.where import Column


@attrs.frozen(kw_only=True)
class FoundRecord:
    """`fields` are the indexed ones by their paths. `is_tail`: it was read from the brokers, not from the index."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    fields: Mapping[str, object]
    is_tail: bool = False

    @property
    def order(self) -> tuple[int, int, int]:
        """The sort key: by time, then by partition and offset."""
        return self.timestamp_ms, self.partition, self.offset

    def value_of(self, column: Column) -> object:
        """The value that a condition compares."""
        match column.path:
            case ("kafka", "key"):
                return self.key
            case ("kafka", "partition"):
                return self.partition
            case ("kafka", "offset"):
                return self.offset
            case ("kafka", "timestamp"):
                return self.timestamp_ms
            case _:
                return self.fields[column.name]
