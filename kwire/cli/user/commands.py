"""`kwire user add`, `list` and `delete`."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

import click
from kwire_protocol.kafka_error import quoted

from kwire.admin.users import NewCredential, delete_user, list_users, put_user
from kwire.cli.columns import printable, show
from kwire.cli.reaching import Reach
from kwire.runtime.clock import SystemClock, secret_of
from kwire.security.sasl.scram import SCRAM_MECHANISMS, SCRAM_MECHANISMS_BY_NUMBER, ScramMechanism, salt_from

MAX_PASSWORD_CHARS = 1024
_COLUMNS = {"user": "USER", "mechanism": "MECHANISM", "iterations": "ITERATIONS"}


def add(
    reach: Reach,
    name: str,
    mechanisms: Collection[str],
    iterations: int,
    data_dir: Path | None,
    config_file: Path | None,
) -> None:
    if not name:
        raise click.UsageError("the user has no name")
    password = _password()
    credentials = [_credential(SCRAM_MECHANISMS[it.upper()], password, iterations) for it in mechanisms]
    if data_dir is not None or config_file is not None:
        from kwire.cli.user.before_start import put_user_into

        put_user_into(data_dir, config_file, name, credentials)
    else:
        with reach.cluster() as cluster:
            put_user(cluster, name, credentials)
    click.echo(f"user {quoted(name)} can log in with {' and '.join(it.upper() for it in mechanisms)}")


def _password() -> str:
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline(MAX_PASSWORD_CHARS + 2).rstrip("\r\n")
    if not password:
        raise click.UsageError("the password is empty: type it, or give it as the first line of standard input")
    if len(password) > MAX_PASSWORD_CHARS:
        raise click.UsageError(f"the password is longer than {MAX_PASSWORD_CHARS} characters")
    return password


def _credential(mechanism: ScramMechanism, password: str, iterations: int) -> NewCredential:
    clock = SystemClock()
    salt = salt_from(secret_of(clock))
    salted = mechanism.salted_password(password, salt, iterations)
    return NewCredential(mechanism.number, iterations, salt, salted)


def list_(reach: Reach, *, as_json: bool) -> None:
    with reach.cluster() as cluster:
        users = list_users(cluster)
    rows = [
        {"user": it.name, "mechanism": SCRAM_MECHANISMS_BY_NUMBER[number].name, "iterations": iterations}
        for it in users
        for number, iterations in sorted(it.iterations.items())
        if number in SCRAM_MECHANISMS_BY_NUMBER
    ]
    if rows or as_json:
        show(rows, _COLUMNS, as_json=as_json)
    else:
        click.echo("there are no users")


def delete(reach: Reach, name: str, mechanisms: Collection[str], *, confirm: bool) -> None:
    with reach.cluster() as cluster:
        [found] = list_users(cluster, [name])
        chosen = {SCRAM_MECHANISMS[it.upper()].number for it in mechanisms} or found.iterations.keys()
        gone = sorted(chosen & found.iterations.keys())
        if not gone:
            click.echo(f"user {quoted(name)} has no password for {' or '.join(it.upper() for it in mechanisms)}")
            return
        if confirm:
            click.confirm(f"delete user {quoted(name)}?", abort=True, err=True)
        delete_user(cluster, name, gone)
    click.echo(printable(f"deleted: {name}, {' and '.join(SCRAM_MECHANISMS_BY_NUMBER[it].name for it in gone)}"))
