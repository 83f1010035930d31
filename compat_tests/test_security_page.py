"""docs/security.md does what it shows: its five commands, and its client. Its settings are there.

The commands are run as they stand there, by a shell. Only the port is replaced by a free one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools.markdown import Block, fenced_blocks
from devtools.places import REPOSITORY
from devtools.ports import free_port
from kwire.config.properties import parse_properties
from kwire.config.server import load_config, warnings_about
from kwire.config.tables.broker import broker_config

PAGE = REPOSITORY / "docs" / "security.md"
PRINTED_PORT = "9093"
ENDS_WITHIN_S = 120


def block_with(word: str) -> Block:
    return next(block for block in fenced_blocks(PAGE) if word in block.text)


class Shell:
    """Runs commands in a folder, with this interpreter's kwire and Python first in the path."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self._port = str(port)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path}

    def here(self, text: str) -> str:
        return text.replace(PRINTED_PORT, self._port)

    def run(self, command: str, *, stdin: str = "") -> str:
        done = subprocess.run(
            ["bash", "-c", self.here(command)],
            cwd=self.folder,
            env=self._environment,
            input=self.here(stdin),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=ENDS_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    @contextmanager
    def in_background(self, command: str) -> Iterator[str]:
        """Gives the first line that it prints."""
        with subprocess.Popen(
            ["bash", "-c", f"exec {self.here(command)}"],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline()
            finally:
                process.terminate()
                process.wait(ENDS_WITHIN_S)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """After the five commands."""
    shell = Shell(tmp_path_factory.mktemp("page"), free_port())
    certificates, first_user, serve, *others = block_with("kwire cert dev").text.splitlines()
    assert len(others) == 2
    shell.run(certificates)
    settings = shell.folder / "certs" / "server.properties"
    settings.write_text(shell.here(settings.read_text()))
    shell.run(first_user)
    assert serve.endswith(" &")
    with shell.in_background(serve.removesuffix(" &")) as listening:
        assert "listening on 127.0.0.1:" in listening
        for command in others:
            shell.run(command)
        yield shell


def test_alice_writes_and_reads_the_topic(shell: Shell) -> None:
    assert shell.run("python -", stdin=block_with("KafkaProducer").text) == "0\nb'two coffees'\n"


def test_alice_is_refused_for_another_topic(shell: Shell) -> None:
    as_shown = block_with("KafkaProducer").text.replace('"orders"', '"payments"')
    tried = (
        "import kafka.errors\ntry:\n"
        + "".join(f"    {line}\n" for line in as_shown.splitlines())
        + "except kafka.errors.TopicAuthorizationFailedError:\n    print('refused')\n"
    )
    assert shell.run("python -", stdin=tried).splitlines()[-1] == "refused"


def test_alice_with_another_password_is_refused(shell: Shell) -> None:
    settings = (shell.folder / "certs" / "admin.properties").read_text()
    password = (shell.folder / "certs" / "admin.password").read_text().strip()
    alice = settings.replace('username="admin"', 'username="alice"')
    (shell.folder / "wrong.properties").write_text(alice)
    (shell.folder / "right.properties").write_text(alice.replace(password, "secret"))
    check = "kwire acl check alice read topic orders --bootstrap-server 127.0.0.1:9093 --command-config"
    with pytest.raises(AssertionError, match="uthentication failed"):
        shell.run(f"{check} wrong.properties")
    with pytest.raises(AssertionError, match="CLUSTER_AUTHORIZATION_FAILED"):
        shell.run(f"{check} right.properties")
    assert "ALLOW READ" in shell.run(f"{check} certs/admin.properties")


def settings_shown() -> list[dict[str, str]]:
    return [parse_properties(block.text) for block in fenced_blocks(PAGE) if block.language == "properties"]


def test_settings_that_are_shown_have_their_effect() -> None:
    shown = settings_shown()
    assert len(shown) >= 6
    for settings in shown:
        assert warnings_about(settings) == []


@pytest.mark.parametrize("settings", [it for it in settings_shown() if any("sasl" in name for name in it)])
def test_settings_of_sasl_make_a_configuration(settings: dict[str, str]) -> None:
    complete = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.location": "server.pem",
        **settings,
    }
    config = load_config(settings=[f"{name}={value}" for name, value in complete.items()])
    assert config.sasl


def test_names_in_tables_are_those_of_configurations() -> None:
    tables = re.findall(r"^\| configuration \|.*\n((?:\|.*\n)+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    cells = re.findall(r"^\| (`[^|]+) \|", "".join(tables), re.MULTILINE)
    names = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert len(names) >= 15
    for name in names:
        assert name.startswith(".") or broker_config(name) is not None, name
