"""`kwire cert dev` writes the files that both sides of TLS need."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kwire.cli import main
from kwire.cli.command_config import read_command_config
from kwire.config.properties import parse_properties
from kwire.config.server import load_config
from kwire.security.sasl.jaas import parse_jaas


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["cert", "dev", *arguments])
    assert result.exit_code == code, result.output
    return result


def context(role: int, keystore: Path, truststore: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(role)
    made.load_cert_chain(keystore)
    made.load_verify_locations(truststore)
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> str:
    """Returns the subject of the client's certificate. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    far = client.wrap_bio(to_client, to_server, server_hostname=host)
    near = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (far, near, far, near):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    found: Any = near.getpeercert()
    return ",".join(f"{name}={value}" for part in found["subject"] for name, value in part)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "broker-1", "10.0.0.7"])
def test_broker_and_client_trust_each_other_at_every_name(tmp_path: Path, host: str) -> None:
    run("--out", str(tmp_path), "--host", "broker-1", "--host", "10.0.0.7", "--client", "alice")
    server = context(ssl.PROTOCOL_TLS_SERVER, tmp_path / "server.pem", tmp_path / "ca.pem")
    client = context(ssl.PROTOCOL_TLS_CLIENT, tmp_path / "client-alice.pem", tmp_path / "ca.pem")
    assert "commonName=alice" in shake_hands(server, client, host)


def test_a_second_run_issues_what_is_missing_by_the_same_authority(tmp_path: Path) -> None:
    run("--out", str(tmp_path), "--client", "alice")
    before = {it.name: it.read_bytes() for it in tmp_path.iterdir()}
    again = run("--out", str(tmp_path), "--client", "bob", "--host", "broker-1")
    for name, content in before.items():
        assert ((tmp_path / name).read_bytes() == content) is (name != "server.pem")
    assert "kept" in again.stdout
    server = context(ssl.PROTOCOL_TLS_SERVER, tmp_path / "server.pem", tmp_path / "ca.pem")
    for name in ("alice", "bob"):
        client = context(ssl.PROTOCOL_TLS_CLIENT, tmp_path / f"client-{name}.pem", tmp_path / "ca.pem")
        shake_hands(server, client, "broker-1")


def test_another_authority_is_not_trusted(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        run("--out", str(tmp_path / name))
    server = context(ssl.PROTOCOL_TLS_SERVER, tmp_path / "ours" / "server.pem", tmp_path / "ours" / "ca.pem")
    client = context(ssl.PROTOCOL_TLS_CLIENT, tmp_path / "theirs" / "client.pem", tmp_path / "theirs" / "ca.pem")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client, "localhost")


def test_nobody_else_can_read_the_keys(tmp_path: Path) -> None:
    run("--out", str(tmp_path / "new" / "folder"))
    for name in ("ca-key.pem", "server.pem", "client.pem"):
        assert (tmp_path / "new" / "folder" / name).stat().st_mode & 0o077 == 0


def test_the_settings_name_the_files(tmp_path: Path) -> None:
    run("--out", str(tmp_path), "--client", "alice")
    server = parse_properties((tmp_path / "server.properties").read_text())
    client = parse_properties((tmp_path / "client.properties").read_text())
    assert server["ssl.keystore.location"] == str(tmp_path / "server.pem")
    assert client["ssl.keystore.location"] == str(tmp_path / "client-alice.pem")
    assert {server["ssl.truststore.location"], client["ssl.truststore.location"]} == {str(tmp_path / "ca.pem")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--client", "a/../b"), "'a/../b' is not a name"),
        (("--client", ""), "'' is not a name"),
        (("--host", "two words"), "'two words' is not a host name"),
    ],
)
def test_what_is_no_name_is_refused(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in run("--out", str(tmp_path), *arguments, code=2).output
    assert not list(tmp_path.iterdir())


def test_a_broken_authority_and_a_folder_that_is_a_file_are_reported(tmp_path: Path) -> None:
    (tmp_path / "ca-key.pem").write_text("nothing")
    assert "is not the key of an authority" in run("--out", str(tmp_path), code=1).output
    assert "cannot write to" in run("--out", str(tmp_path / "ca-key.pem" / "below"), code=1).output


def test_with_an_admin_the_settings_are_for_passwords_and_acls(tmp_path: Path) -> None:
    run("--out", str(tmp_path), "--admin", "root")
    names = {"ca.pem", "ca-key.pem", "server.pem", "server.properties", "root.password", "root.properties"}
    assert {it.name for it in tmp_path.iterdir()} == names
    assert all(it.stat().st_mode & 0o077 == 0 for it in tmp_path.iterdir())
    config = load_config((tmp_path / "server.properties").read_text())
    assert [it.security_protocol for it in config.listeners] == ["SASL_SSL"]
    assert [it.name for it in config.sasl["SASL_SSL"]] == ["SCRAM-SHA-512", "SCRAM-SHA-256"]
    assert config.super_users == {"User:root"}


def test_the_admins_settings_have_its_password(tmp_path: Path) -> None:
    run("--out", str(tmp_path), "--admin", "root")
    settings = parse_properties((tmp_path / "root.properties").read_text())
    options = parse_jaas(settings["sasl.jaas.config"]).options
    assert options == {"username": "root", "password": (tmp_path / "root.password").read_text().strip()}
    assert len(options["password"]) == 32
    read_command_config(tmp_path / "root.properties")


def test_each_admin_has_another_password(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        run("--out", str(tmp_path / folder), "--admin", "root")
    assert (tmp_path / "one" / "root.password").read_text() != (tmp_path / "other" / "root.password").read_text()


def test_a_second_run_keeps_password_and_settings(tmp_path: Path) -> None:
    run("--out", str(tmp_path), "--admin", "root")
    before = {it.name: it.read_bytes() for it in tmp_path.iterdir()}
    run("--out", str(tmp_path), "--admin", "root", "--host", "broker-1")
    after = {it.name: it.read_bytes() for it in tmp_path.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"server.pem"}


def test_a_new_password_is_in_the_settings_too(tmp_path: Path) -> None:
    run("--out", str(tmp_path), "--admin", "root")
    (tmp_path / "root.password").unlink()
    run("--out", str(tmp_path), "--admin", "root")
    assert (tmp_path / "root.password").read_text().strip() in (tmp_path / "root.properties").read_text()


@pytest.mark.parametrize("before", [(), ("--admin", "other")])
def test_settings_that_do_not_name_the_admin_are_not_kept_in_silence(tmp_path: Path, before: tuple[str, ...]) -> None:
    run("--out", str(tmp_path), *before)
    output = run("--out", str(tmp_path), "--admin", "root", code=1).output
    assert "user root is not among its super.users" in output
    assert not (tmp_path / "root.password").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--admin", "a;User:b"), "--admin 'a;User:b' is not a name"),
        (("--admin", "server"), "server.properties is another file"),
        (("--admin", "root", "--client", "alice"), "with --admin clients have no certificates"),
    ],
)
def test_an_admin_that_cannot_be_one_is_refused(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in run("--out", str(tmp_path), *arguments, code=2).output
    assert not list(tmp_path.iterdir())
