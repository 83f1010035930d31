"""The `kwire` command as a process: start-up line, refusals in one line, and a graceful stop."""

from __future__ import annotations

import logging
import os
import re
import resource
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.metadata import MetadataRequest

import kwire
from kwire.config.server import load_config
from kwire.node.running import run_until_signalled
from testkit.raw.client import RawClient
from testkit.security.tls.certificates import issued

KWIRE = [sys.executable, "-m", "kwire"]
TIMEOUT_S = 60


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*KWIRE, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Runs `kwire serve` and yields the process and its address, once it is printed."""
    process = subprocess.Popen(
        [*KWIRE, "serve", "--listen", "127.0.0.1:0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"listening on (\S+) \(node (\d+)", line)
        assert match is not None, line
        yield process, match[1]
    finally:
        process.kill()
        process.communicate()


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"kwire {kwire.__version__}\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_broker_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with serving("--data-dir", str(tmp_path)) as (process, address):
        with RawClient(address) as client:
            assert client.call(MetadataRequest(None), 9).brokers[0].node_id == 1
        process.send_signal(number)
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
        assert f"stopping: received {number.name}" in errors
        assert "Traceback" not in errors
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_metadata_has_the_address_that_was_dialled(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path)) as (_, address), RawClient(address) as client:
        broker = client.call(MetadataRequest(None), 9).brokers[0]
        assert f"{broker.host}:{broker.port}" == address


def test_metadata_has_the_advertised_address_where_one_is_configured(tmp_path: Path) -> None:
    advertised = "advertised.listeners=PLAINTEXT://kafka.example:19092"
    with serving("--data-dir", str(tmp_path), "--set", advertised) as (_, address), RawClient(address) as client:
        broker = client.call(MetadataRequest(None), 9).brokers[0]
        assert (broker.host, broker.port) == ("kafka.example", 19092)


def test_a_second_broker_on_the_same_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path)):
        refused = run("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
        assert refused.returncode == 1
        assert "another broker is using the log dir" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path / "one")) as (_, address):
        refused = run("serve", "--listen", address, "--data-dir", str(tmp_path / "two"))
        assert refused.returncode == 1
        assert address in refused.stderr
        assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--set", "nonsense"], "name=value"),
        (["--listen", "9092"], "host:port"),
        (["--metrics-listen", "9404"], "kwire.metrics.listen is '9404': an address is written host:port"),
        (["--config", "/nowhere/server.properties"], "does not exist"),
    ],
)
def test_a_mistake_on_the_command_line_is_reported_without_a_traceback(arguments: list[str], message: str) -> None:
    refused = run("serve", *arguments)
    assert refused.returncode != 0
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_folder_that_cannot_be_made_is_reported_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    refused = run("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "file" / "data"))
    assert refused.returncode == 1
    assert "cannot open the log dir" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_settings_come_from_the_file_and_set_wins(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=7\nbroker.rack=attic\n", encoding="utf-8")
    with (
        serving("--config", str(file), "--data-dir", str(tmp_path / "data"), "--set", "broker.rack=cellar") as (
            _,
            address,
        ),
        RawClient(address) as client,
    ):
        broker = client.call(MetadataRequest(None), 9).brokers[0]
        assert (broker.node_id, broker.rack) == (7, "cellar")


@pytest.fixture
def limits_stay() -> Iterator[None]:
    """A broker raises the limit of its process's descriptors, which is that of all tests here."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


PLAIN_USERS = "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_a=b;"
STRANGERS = "without authentication: anyone who reaches this address can read and change all data"


@pytest.mark.usefixtures("limits_stay")
@pytest.mark.parametrize(
    ("protocol", "settings", "warning"),
    [
        ("PLAINTEXT", (), STRANGERS),
        ("SSL", ("ssl.client.auth=none",), STRANGERS),
        ("SSL", ("ssl.client.auth=requested",), STRANGERS),
        ("SSL", ("ssl.client.auth=required",), None),
        (
            "SASL_PLAINTEXT",
            ("sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256", PLAIN_USERS),
            "for PLAIN without encryption: anyone who sees the network's traffic learns passwords",
        ),
        ("SASL_PLAINTEXT", ("sasl.enabled.mechanisms=SCRAM-SHA-256",), None),
        ("SASL_SSL", ("sasl.enabled.mechanisms=PLAIN", PLAIN_USERS), None),
    ],
)
def test_a_listener_beyond_loopback_is_warned_of_unless_it_has_authentication(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    protocol: str,
    settings: tuple[str, ...],
    warning: str | None,
) -> None:
    """Calls the command's function in this process: seven processes took a quarter of this file's time."""
    (tmp_path / "server.pem").write_text(issued("localhost").pem, encoding="utf-8")
    config = load_config(
        settings=[
            f"listeners={protocol}://0.0.0.0:0",
            f"advertised.listeners={protocol}://localhost:1",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={tmp_path / 'server.pem'}",
            *settings,
        ],
        data_dirs=[str(tmp_path / "data")],
    )
    announced: list[str] = []

    def stop(line: str) -> None:
        announced.append(line)
        os.kill(os.getpid(), signal.SIGTERM)

    run_until_signalled(config, announce=stop)
    assert "listening on 0.0.0.0:" in announced[0]
    warned = "".join(it.getMessage() for it in caplog.records if it.levelno == logging.WARNING)
    assert ("network's traffic" in warned or "without authentication" in warned) == (warning is not None)
    assert (warning or "") in warned


def test_a_keystore_that_cannot_be_read_is_reported_in_one_line(tmp_path: Path) -> None:
    nowhere = tmp_path / "server.p12"
    refused = run(
        *("serve", "--listen", "SSL://127.0.0.1:0", "--data-dir", str(tmp_path / "data")),
        *("--set", f"ssl.keystore.location={nowhere}", "--set", "ssl.keystore.password=s3cret"),
    )
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        f"Error: listener SSL: ssl.keystore.location: {nowhere} cannot be read: No such file or directory"
    )
    assert "Traceback" not in refused.stderr
    assert "s3cret" not in refused.stderr


def test_metrics_are_served_at_the_address_of_the_flag(tmp_path: Path) -> None:
    with serving("--metrics-listen", "127.0.0.1:0", "--data-dir", str(tmp_path)) as (process, _):
        assert process.stderr is not None
        line = process.stderr.readline()
        url = re.search(r"metrics are at (\S+)$", line)
        assert url is not None, line
        with urllib.request.urlopen(url[1], timeout=TIMEOUT_S) as answer:
            assert b"kafka_server_group_coordinator_metrics_group_count" in answer.read()


def test_a_disk_that_fails_under_the_metadata_log_ends_the_broker_with_an_exit_code(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path)) as (process, address):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, 1))  # every write is refused from now on: EFBIG
        with RawClient(address) as client, suppress(OSError, EOFError):
            client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000), 7)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert f"the log dir {tmp_path} is out of service: [Errno 27]" in errors
    last = errors.splitlines()[-1]
    assert last.startswith(f"Error: the log dir {tmp_path}, which has the metadata log, is out of service:")
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_several_log_dirs_and_one_that_is_broken_at_the_next_start(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    create = CreateTopicsRequest([CreatableTopic("t", 2, 1)], 1000)
    with serving("--data-dir", f"{one},{two}") as (process, address):
        with RawClient(address) as client:
            assert client.call(create, 7).topics[0].error_code == 0
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
    assert [(path / f"t-{index}").is_dir() for path in (one, two) for index in (0, 1)] == [True, False, False, True]
    two.rename(tmp_path / "away")
    two.write_text("a file where the disk was mounted")
    with serving("--data-dir", str(one), "--data-dir", str(two)) as (process, address):
        with RawClient(address) as client:
            assert len(client.call(MetadataRequest(None), 9).topics) == 1
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert f"the log dir {two} cannot be opened and is out of service" in errors
    assert "1 partitions are in log dirs that are not in service, and answer KAFKA_STORAGE_ERROR: t-1." in errors
    assert "Traceback" not in errors


def test_a_metadata_folder_that_cannot_be_opened_is_a_refusal_in_one_line(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with serving("--data-dir", str(one), "--data-dir", str(two)) as (process, _):
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
    other_way_round = run("serve", "--listen", "127.0.0.1:0", "--data-dir", str(two), "--data-dir", str(one))
    assert other_way_round.returncode == 1
    assert f"{one} has it: name that one first in log.dirs" in other_way_round.stderr
    assert "Traceback" not in other_way_round.stderr
