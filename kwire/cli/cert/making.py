"""Writes the files of `kwire cert dev`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from kwire.cli.columns import show
from kwire.security.tls.dev_certificates import LOCAL_HOSTS, DevAuthority

_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._@-]{0,63}")
_HOST: Final = re.compile(r"[0-9A-Za-z:*][0-9A-Za-z.:_-]{0,252}")
_PRIVATE: Final = 0o600
_RULE: Final = "RULE:^CN=([^,]+),.*$/$1/,DEFAULT"
"""The principal of a client is its name: User:alice."""


def make(folder: Path, hosts: Sequence[str], clients: Sequence[str]) -> None:
    _check(_NAME, clients, "--client {} is not a name: use letters, digits and . _ @ -, at most 64 of them")
    _check(_HOST, hosts, "--host {} is not a host name or an address")
    try:
        _make(folder, hosts, clients)
    except OSError as error:
        raise click.ClickException(f"cannot write to {folder}: {error.strerror}") from None


def _check(pattern: re.Pattern[str], texts: Iterable[str], complaint: str) -> None:
    for text in texts:
        if not pattern.fullmatch(text):
            raise click.UsageError(complaint.format(ascii(text)))


def _make(folder: Path, hosts: Sequence[str], clients: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    authority = _authority(folder / "ca-key.pem")
    keystores = {f"client-{name}.pem" if name != "client" else "client.pem": name for name in clients}
    files: dict[str, tuple[bytes, str]] = {
        "ca.pem": (authority.certificate, "truststore: the authority that signs all of them"),
        "ca-key.pem": (authority.pem, "the authority's own key; keep it to yourself"),
        "server.pem": (authority.server((*LOCAL_HOSTS, *hosts)), "the broker's keystore"),
        **{file: (authority.client(name), f"keystore of client {name}") for file, name in keystores.items()},
    }
    where = folder.absolute()
    files["server.properties"] = (_properties(_server(where)), "settings of a broker with TLS")
    files["client.properties"] = (_properties(_client(where, next(iter(keystores)))), "settings of a client")
    rows = []
    for name, (content, what) in files.items():
        # The broker's certificate is made anew, because its hosts may be others. Those of clients stay as they are.
        is_new = name == "server.pem" or not (folder / name).exists()
        if is_new:
            _write(folder / name, content)
        rows.append({"file": str(folder / name), "state": "written" if is_new else "kept", "what": what})
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
    """Readable for its owner only, from the first moment on."""
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


def _properties(settings: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
