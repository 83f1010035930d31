"""Writes the files of `kwire cert dev`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import click

from kwire.cli.columns import show
from kwire.config.properties import parse_properties
from kwire.config.tables.access import STANDARD_AUTHORIZER
from kwire.runtime.clock import SystemClock
from kwire.security.sasl.jaas import SCRAM_MODULE
from kwire.security.tls.dev_certificates import LOCAL_HOSTS, DevAuthority

_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._@-]{0,63}")
_HOST: Final = re.compile(r"[0-9A-Za-z:*][0-9A-Za-z.:_-]{0,252}")
_TAKEN: Final = ("server", "client")
_PRIVATE: Final = 0o600
_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
_RULE: Final = "RULE:^CN=([^,]+),.*$/$1/,DEFAULT"
"""The principal of a client is the common name in its certificate: User:alice."""


@attrs.frozen
class _File:
    content: bytes = attrs.field(repr=False)
    what: str
    is_new: bool = False
    """True if it replaces an existing file."""


def make(folder: Path, hosts: Sequence[str], clients: Sequence[str], admin: str | None) -> None:
    """Writes the files. With an `admin` there are no certificates of clients. Raises click's errors."""
    _check(_NAME, clients, "--client {} is not a name: use letters, digits and . _ @ -, at most 64 of them")
    _check(_HOST, hosts, "--host {} is not a host name or an address")
    if admin is not None:
        _check(_NAME, [admin], "--admin {} is not a name: use letters, digits and . _ @ -, at most 64 of them")
        if admin in _TAKEN:
            raise click.UsageError(f"--admin {admin} is no good name: {admin}.properties is another file")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        authority = _authority(folder / "ca-key.pem")
        files = {
            "ca.pem": _File(authority.certificate, "truststore: the authority that signs all of them"),
            "ca-key.pem": _File(authority.pem, "the authority's own key; keep it to yourself"),
            # Made again, because its hosts may have changed. The certificates of clients stay as they are.
            "server.pem": _File(authority.server((*LOCAL_HOSTS, *hosts)), "the broker's keystore", is_new=True),
        }
        if admin is None:
            files |= _for_certificates(folder, authority, clients)
        else:
            files |= _for_passwords(folder, admin)
        _write_all(folder, files)
    except OSError as error:
        raise click.ClickException(f"cannot write to {folder}: {error.strerror}") from None


def _check(pattern: re.Pattern[str], texts: Iterable[str], complaint: str) -> None:
    for text in texts:
        if not pattern.fullmatch(text):
            raise click.UsageError(complaint.format(ascii(text)))


def _for_certificates(folder: Path, authority: DevAuthority, clients: Sequence[str]) -> dict[str, _File]:
    where = folder.absolute()
    keystores = {f"client-{name}.pem" if name != "client" else "client.pem": name for name in clients}
    return {
        **{file: _File(authority.client(name), f"keystore of client {name}") for file, name in keystores.items()},
        "server.properties": _File(_properties(_server(where)), "settings of a broker with TLS"),
        "client.properties": _File(_properties(_client(where, next(iter(keystores)))), "settings of a client"),
    }


def _for_passwords(folder: Path, admin: str) -> dict[str, _File]:
    where = folder.absolute()
    _check_settings(folder / "server.properties", admin)
    of_password = folder / f"{admin}.password"
    is_new = not of_password.exists()
    clock = SystemClock()
    password = clock.uuid().hex() if is_new else of_password.read_text(encoding="utf-8").strip()
    return {
        "server.properties": _File(
            _properties(_server_with_users(where, admin)), "settings of a broker with TLS and ACLs"
        ),
        of_password.name: _File(f"{password}\n".encode(), f"the password of user {admin}"),
        f"{admin}.properties": _File(
            _properties(_admin(where, admin, password)), f"settings of a client that is {admin}", is_new=is_new
        ),
    }


def _check_settings(path: Path, admin: str) -> None:
    """Raises ClickException if existing settings, which are kept, do not have `admin` among their super.users.

    They would accept clients by certificates, or other users.
    """
    if path.exists():
        found = parse_properties(path.read_text(encoding="utf-8")).get("super.users", "")
        if f"User:{admin}" not in [it.strip() for it in found.split(";")]:
            raise click.ClickException(
                f"{path} is there already, and user {admin} is not among its super.users. Choose another folder with "
                "--out, or remove the file"
            )


def _write_all(folder: Path, files: Mapping[str, _File]) -> None:
    rows = []
    for name, file in files.items():
        is_new = file.is_new or not (folder / name).exists()
        if is_new:
            _write(folder / name, file.content)
        rows.append({"file": str(folder / name), "state": "written" if is_new else "kept", "what": file.what})
    show(rows, {"file": "FILE", "state": "", "what": "WHAT"}, as_json=False)


def _authority(path: Path) -> DevAuthority:
    if not path.exists():
        return DevAuthority.new()
    try:
        return DevAuthority.from_pem(path.read_bytes())
    except ValueError as error:
        raise click.ClickException(
            f"{path} is not the key of an authority: {error}. Choose another folder with --out, or remove the file"
        ) from None


def _write(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read, from the first moment on."""
    path.unlink(missing_ok=True)
    path.touch(_PRIVATE, exist_ok=False)
    path.write_bytes(content)


def _server(folder: Path) -> Mapping[str, str]:
    return {
        "listeners": "SSL://127.0.0.1:9093",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": _RULE,
    }


def _client(folder: Path, keystore: str) -> Mapping[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }


def _server_with_users(folder: Path, admin: str) -> Mapping[str, str]:
    return {
        "listeners": "SASL_SSL://127.0.0.1:9093",
        "security.inter.broker.protocol": "SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "sasl.enabled.mechanisms": ",".join(_MECHANISMS),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{admin}",
    }


def _admin(folder: Path, admin: str, password: str) -> Mapping[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "sasl.mechanism": _MECHANISMS[0],
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="{admin}" password="{password}";',
    }


def _properties(settings: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
