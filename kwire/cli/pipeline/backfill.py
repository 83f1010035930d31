"""`kwire pipeline backfill` and `redo`: read records again, into an existing table."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import click

from kwire.cli.pipeline.existing import ExistingTable, opened
from kwire.pipeline.bounds import parse_bound, resolve
from kwire.pipeline.clock import now_ms
from kwire.pipeline.tables.backfill import backfill, redo
from kwire.pipeline.tables.preparing import grow_to


def run_backfill(existing: ExistingTable, *, first: str, until: str, as_json: bool) -> None:
    """Raises PipelineError."""
    at_ms = now_ms()
    bounds = [parse_bound(text, now_ms=at_ms) for text in (first, until)]
    with opened(existing, "backfill") as it:
        topic = it.topics.state(it.plan.topic, it.plan.isolation)
        low, high = (resolve(bound, topic, lambda ms: it.topics.offsets_at(topic.topic, ms)) for bound in bounds)
        added = backfill(it.plan, it.writer, it.spark, topic, low, high)
    if as_json:
        click.echo(json.dumps(attrs.asdict(added)))
    else:
        click.echo(f"{added.records:,} records read, {added.rows:,} rows and {added.errors:,} errors added")


def run_redo(existing: ExistingTable, *, schema: Path | None, as_json: bool) -> None:
    """Raises PipelineError."""
    with opened(existing, "redo") as it:
        topic = it.topics.state(it.plan.topic, it.plan.isolation)
        writer = it.writer if schema is None else grow_to(it.plan, it.writer, it.spark, schema)
        done = redo(it.plan, writer, it.spark, topic)
    if as_json:
        click.echo(json.dumps(attrs.asdict(done)))
        return
    click.echo(f"{done.rows:,} of {done.errors:,} errors are rows now")
    if done.too_old:
        click.echo(
            f"{done.too_old:,} more can be decoded, but are older than the topic's first offset. Tombstones for their "
            "keys may have been deleted already, so they stay errors"
        )
