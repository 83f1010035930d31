"""The format of values (bytes, JSON or Avro), and the schemas of Avro.

Avro is either plain or in Confluent's wire format. For the latter the schemas are in a folder as ID.avsc, and the
newest one defines the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Literal

import attrs

ValueFormat = Literal["bytes", "json", "avro", "confluent-avro"]
FORMATS: Final[tuple[ValueFormat, ...]] = ("bytes", "json", "avro", "confluent-avro")


@attrs.frozen
class AvroSchemas:
    """Avro schemas as JSON. `by_id` is empty for plain Avro; `reader` is the schema that defines the table."""

    reader: str
    by_id: Mapping[int, str] = attrs.field(factory=dict)

    def to_json(self) -> str:
        return json.dumps({"reader": self.reader, "by_id": {str(number): it for number, it in self.by_id.items()}})

    @classmethod
    def from_json(cls, text: str) -> AvroSchemas:
        found = json.loads(text)
        return cls(found["reader"], {int(number): it for number, it in found["by_id"].items()})
