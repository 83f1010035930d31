"""`kwire group reset`."""

from __future__ import annotations

import click
from kwire_protocol.kafka_error import quoted

from kwire.admin.groups import CLASSIC, GroupAdmin, GroupDescription, GroupNotFound
from kwire.admin.groups_reset import (
    PlannedReset,
    ResetTarget,
    Scope,
    ShiftBy,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    check_inactive,
    execute_reset,
    plan_reset,
)
from kwire.cli.columns import Row, printable, show
from kwire.cli.group.arguments import parse_datetime_ms, parse_duration_ms
from kwire.cli.reaching import Reach
from kwire.client.errors import ClientError
from kwire.runtime.clock import SystemClock

_COLUMNS = {"topic": "TOPIC", "partition": "PARTITION", "before": "OFFSET BEFORE", "after": "OFFSET AFTER"}


def choose_target(
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
) -> ResetTarget:
    """Returns the target of the given option. Raises UsageError unless exactly one is given."""
    now_ms = SystemClock().now_ms()
    given: list[ResetTarget] = []
    if to_earliest:
        given.append(ToEarliest())
    if to_latest:
        given.append(ToLatest())
    if to_offset is not None:
        given.append(ToOffset(to_offset))
    if shift_by is not None:
        given.append(ShiftBy(shift_by))
    if to_datetime is not None:
        given.append(ToTime(parse_datetime_ms(to_datetime, now_ms=now_ms)))
    if by_duration is not None:
        given.append(ToTime(max(now_ms - parse_duration_ms(by_duration), 0)))
    if len(given) != 1:
        raise click.UsageError(
            "say where to: one of --to-earliest, --to-latest, --to-offset, --shift-by, --to-datetime, --by-duration"
        )
    return given[0]


def reset(
    reach: Reach,
    group_id: str,
    scope: Scope | None,
    target: ResetTarget,
    *,
    execute: bool,
    as_json: bool,
) -> None:
    """Prints the planned reset, and executes it on request. Without a scope: all partitions with an offset."""
    with reach.cluster() as cluster:
        group = _describe(GroupAdmin(cluster), group_id, create=scope is not None)
        check_inactive(group)
        planned = plan_reset(cluster, group, scope, target)
        if not planned:
            raise ClientError(f"group {quoted(group_id)} has no offsets: name topics with --topic")
        if execute:
            execute_reset(cluster, group, planned)
    for it in planned:
        if it.wanted != it.after:
            click.echo(f"note: {printable(str(it.at))}: {it.wanted} is not in the log, {it.after} is nearest", err=True)
    show([_row(group_id, it, executed=execute) for it in planned], _COLUMNS, as_json=as_json)
    if not execute and not as_json:
        click.echo("\nnothing was changed: --execute sets these offsets")


def _describe(admin: GroupAdmin, group_id: str, *, create: bool) -> GroupDescription:
    """Describes the group. With `create`, a group that does not exist is an empty one, as in Kafka's tool."""
    try:
        return admin.describe(group_id)
    except GroupNotFound as error:
        if not create:
            raise
        click.echo(f"note: {printable(error.message)}: --execute creates it", err=True)
        return GroupDescription(
            group_id=group_id,
            kind=CLASSIC,
            state="Empty",
            protocol_type="",
            assignor=None,
            epoch=None,
            assignment_epoch=None,
            coordinator_id=-1,
            members=(),
        )


def _row(group_id: str, it: PlannedReset, *, executed: bool) -> Row:
    return {
        "type": "reset",
        "group_id": group_id,
        "topic": it.at.topic,
        "partition": it.at.partition,
        "before": it.before,
        "after": it.after,
        "executed": executed,
    }
