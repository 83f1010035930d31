"""`kwire quota set`, `list` and `delete`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from kwire_protocol.kafka_error import quoted

from kwire.admin.quotas import CLIENT_ID, IP, KEYS, USER, Entity, alter_quotas, entity_text, list_quotas
from kwire.cli.columns import printable, show
from kwire.cli.reaching import Reach

_COLUMNS = {"user": "USER", "client_id": "CLIENT ID", "ip": "IP", "key": "QUOTA", "value": "VALUE"}
_DEFAULT = "<default>"


def set_(reach: Reach, **given: Any) -> None:
    entity = _entity(given)
    values = {key: value for key, value in given.items() if key in KEYS and value is not None}
    if not values:
        raise click.UsageError(f"say what: {', '.join('--' + key.replace('_', '-') for key in KEYS)}")
    with reach.cluster() as cluster:
        alter_quotas(cluster, entity, values)
    for key, value in values.items():
        click.echo(printable(f"{entity_text(entity)}: {key} is {value:.15g}"))


def list_(reach: Reach, *, as_json: bool) -> None:
    with reach.cluster() as cluster:
        found = list_quotas(cluster)
    rows = [
        {"user": None, "client_id": None, "ip": None, **_names(it.entity), "key": key, "value": value}
        for it in found
        for key, value in sorted(it.values.items())
    ]
    if as_json:
        show(rows, {}, as_json=True)
    elif rows:
        show([{**row, "value": f"{row['value']:.15g}"} for row in rows], _COLUMNS, as_json=False)
    else:
        click.echo("there are no quotas")


def delete(reach: Reach, *, keys: Sequence[str], **given: Any) -> None:
    for key in keys:
        if key not in KEYS:
            raise click.UsageError(f"--key {quoted(key)} is none of {', '.join(KEYS)}")
    entity = _entity(given)
    with reach.cluster() as cluster:
        has = next((it.values for it in list_quotas(cluster) if it.entity == entity), {})
        gone = sorted(key for key in has if not keys or key in keys)
        if not gone:
            click.echo(printable(f"{entity_text(entity)} has no such quota"))
            return
        alter_quotas(cluster, entity, {}, gone)
    click.echo(printable(f"{entity_text(entity)}: deleted {', '.join(gone)}"))


def _entity(given: dict[str, Any]) -> Entity:
    """Raises UsageError."""
    found: list[tuple[str, str | None]] = []
    for kind, name, is_default in (
        (CLIENT_ID, given["client_id"], given["default_client_id"]),
        (IP, given["ip"], given["default_ip"]),
        (USER, given["user"], given["default_user"]),
    ):
        if is_default and name is not None:
            raise click.UsageError(f"--{kind} and --default-{kind} exclude each other")
        if is_default or name is not None:
            found.append((kind, name))
    if not found:
        raise click.UsageError("say for whom: --user, --client-id, both, or --ip, or one of the defaults")
    return tuple(found)


def _names(entity: Entity) -> dict[str, str]:
    return {kind.replace("-", "_"): _DEFAULT if name is None else name for kind, name in entity}
