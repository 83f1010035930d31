"""The plan of an index job, as a value: a table job's plan with fields and its own properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.index.fields import Field, Wanted, fields_from_json
from kwire.pipeline.tables.plan import Mode, TablePlan
from kwire.pipeline.tables.values import ValueFormat

FIELDS_PROPERTY: Final = "kwire.index.fields"

ROW_GROUP_BYTES: Final = 4 << 20
PAGE_BYTES: Final = 64 << 10
BLOOM_BYTES: Final = 128 << 10
"""The size of a Bloom filter. For a row group of 100,000 values about 1 in 200 lookups is a false positive."""


@attrs.frozen(kw_only=True)
class IndexPlan(TablePlan):
    """One topic's index. `table` is the index's own name."""

    fields: tuple[Wanted, ...]
    buckets: int = 8
    value: ValueFormat = "json"
    mode: Mode = "index"
    interval_s: float = 60.0

    def check(self) -> None:
        super().check()
        if self.value != "json":
            raise PipelineError(f"an index is made of JSON values; --value {self.value} has no fields to be read yet")

    def properties_for(self, fields: tuple[Field, ...]) -> dict[str, str]:
        """The properties that the table is created with, when the fields have types."""
        bloom = {f"write.parquet.bloom-filter-enabled.column.{it}": "true" for it in bloom_columns(fields)}
        return {
            **self.table_properties,
            "write.parquet.row-group-size-bytes": str(ROW_GROUP_BYTES),
            "write.parquet.page-size-bytes": str(PAGE_BYTES),
            "write.parquet.bloom-filter-max-bytes": str(BLOOM_BYTES),
            **bloom,
        }

    def check_table(self, properties: Mapping[str, str]) -> None:
        super().check_table(properties)
        there = {it.path: it.type for it in fields_from_json(properties.get(FIELDS_PROPERTY, ""))}
        mine = {it.path: it.type or there.get(it.path) for it in self.fields}
        if mine != there:
            has = ",".join(f"{path}:{kind}" for path, kind in there.items())
            raise PipelineError(
                f"the index {self.table} has the fields {has}: rows that are there have no others. Continue "
                "with these, or make another index, --table NAME"
            )

    def describe(self) -> dict[str, object]:
        fields = [it.path if it.type is None else f"{it.path}:{it.type}" for it in self.fields]
        shown = super().describe()
        for name in ("schema", "partition_by", "evolve", "dead_letter_topic"):
            del shown[name]
        return {**shown, "fields": fields, "buckets": self.buckets}


def bloom_columns(fields: tuple[Field, ...]) -> list[str]:
    """The columns that are looked up by equality. A filter of a boolean would be useless."""
    return ["kafka.key", *(it.column for it in fields if it.type != "BOOLEAN")]
