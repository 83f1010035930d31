"""`kwire log check` and `kwire log repair` as commands: output, prompts, refusals and exit codes.

What is found and how it is mended is tested in storage/tests/inspection/test_inspection.py.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from select import select

import pytest
from kwire_storage.checkpoints import encode_offsets

from devtools.suite.snapshots import Snapshot
from kwire.testing import Broker
from testkit.cli.json_page import check_all_keys
from testkit.cli.log_dirs import ORDERS, SETTINGS, consume, fill, kwire, rows
from testkit.cli.prompt import Prompt
from testkit.cli.small_log_dir import damage_log_dir, write_log_dir

LOG = "00000000000000000000.log"


@pytest.fixture
def data(made_data: Path, tmp_path: Path) -> Path:
    """Returns a copy to damage."""
    path = tmp_path / "data"
    shutil.copytree(made_data, path)
    return path


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_checks_as_people_see_them(tmp_path: Path, snapshot: Snapshot) -> None:
    write_log_dir(tmp_path)
    check = Prompt(["log", "check"], renamed={str(tmp_path): "data"})
    check(str(tmp_path))
    damage_log_dir(tmp_path)
    check(str(tmp_path), code=1)
    check(str(tmp_path / "orders-0"), "--no-notes", code=1)
    snapshot("log-check", check.transcript)


def test_a_sound_folder_ends_with_0(data: Path) -> None:
    assert kwire("log", "check", data).exit_code == 0
    (summary,) = rows("check", data)
    assert (summary["partitions"], summary["errors"], summary["warnings"], summary["notes"]) == (3, 0, 0, 0)


def test_findings_end_with_1(data: Path) -> None:
    flip(data / "orders-0" / LOG, 100)
    (data / "orders-0" / "leader-epoch-checkpoint").unlink()
    assert kwire("log", "check", data).exit_code == 1
    assert kinds("check", data) == ["corrupt-range", "epochs-missing"]


def kinds(*arguments: str | Path) -> list[str]:
    return [row["kind"] for row in rows(*arguments) if row["type"] == "finding"]


def test_findings_as_json(data: Path) -> None:
    flip(data / "orders-0" / LOG, 100)
    found = rows("check", data)
    check_all_keys("log check", found)
    finding, summary = found[0], found[-1]
    assert "CRC" in finding.pop("what")
    assert "--drop-corrupt-ranges" in finding.pop("advice")
    assert finding.pop("end_position") > 61
    assert finding == {
        "type": "finding",
        "severity": "error",
        "kind": "corrupt-range",
        "folder": str(data),
        "path": f"orders-0/{LOG}",
        "position": 0,
        "offset": 0,
        "repair": "drop",
    }
    assert (summary["type"], summary["partitions"], summary["errors"]) == ("summary", 3, 1)


def test_a_bar_on_the_terminal_takes_no_finding_from_the_pipe(data: Path) -> None:
    flip(data / "orders-0" / LOG, 100)
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "kwire", "log", "check", str(data), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, env={**os.environ, "TERM": "xterm"})
    os.close(slave)
    try:
        found, _ = process.communicate(timeout=60)
        bar = b""
        while select([master], [], [], 1)[0]:
            try:
                bar += os.read(master, 65536)
            except OSError:  # nobody has the other end open
                break
    finally:
        process.kill()
        process.wait()
        os.close(master)
    assert [json.loads(line)["type"] for line in found.splitlines()][-1] == "summary"
    assert b"corrupt-range" in found
    assert b"checking" in bar
    assert b"corrupt-range" not in bar


def test_notes_are_no_findings_and_may_be_left_out(data: Path) -> None:
    (data / "orders-0" / f"{LOG}.deleted").write_bytes(b"")
    assert kwire("log", "check", data).exit_code == 0
    assert kinds("check", data) == ["leftover"]
    assert kinds("check", data, "--no-notes") == []


def test_a_partition_or_a_file_may_be_checked_alone(data: Path) -> None:
    (data / "orders-0" / LOG).with_suffix(".index").unlink()
    assert kwire("log", "check", data / "orders-0").exit_code == 1
    assert kwire("log", "check", data / "__consumer_offsets-0").exit_code == 0
    assert kwire("log", "check", data / "orders-0" / LOG).exit_code == 0
    assert kwire("log", "check", data / "recovery-point-offset-checkpoint").exit_code == 0
    (data / "recovery-point-offset-checkpoint").write_bytes(b"?")
    assert kwire("log", "check", data / "recovery-point-offset-checkpoint").exit_code == 1


def test_a_partition_alone_is_held_against_what_the_folder_promises_of_it(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_bytes(encode_offsets({("orders", 0): ORDERS + 1}))
    assert "checkpoint-beyond-end" in kinds("check", data / "orders-0")


def test_one_partition_in_two_log_dirs_is_found(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(data, other)
    shutil.rmtree(other / "__cluster_metadata-0")
    shutil.rmtree(other / "__consumer_offsets-0")
    assert kinds("check", data, other, "--no-notes") == ["duplicate-partition"]


def test_skipping_records_trusts_the_crc(data: Path) -> None:
    result = kwire("log", "check", data, "--skip-records")
    assert result.exit_code == 0


def test_the_folder_of_a_running_broker_is_sound(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, settings=SETTINGS) as broker:
        fill(broker.address)
        for _ in range(3):
            result = kwire("log", "check", tmp_path)
            assert result.exit_code == 0, result.stdout
            fill(broker.address, count=50)
        with (tmp_path / "orders-0" / "00000000000000000000.log").open("ab"):
            pass
        consume(broker.address, 100)


def test_a_repair_is_refused_while_a_broker_runs(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, settings=SETTINGS) as broker:
        fill(broker.address, count=10)
        for folder in (tmp_path, tmp_path / "orders-0"):
            result = kwire("log", "repair", folder, "--yes")
            assert result.exit_code == 1
            assert "a broker uses" in result.stderr
            assert "stop it first" in result.stderr


def test_a_repair_of_one_file_is_refused(data: Path) -> None:
    result = kwire("log", "repair", data / "orders-0" / LOG)
    assert result.exit_code == 2
    assert str(data / "orders-0") in result.stderr


def test_a_repair_needs_a_terminal_or_yes(data: Path) -> None:
    (data / "orders-0" / LOG).with_suffix(".index").unlink()
    result = kwire("log", "repair", data)
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    result = kwire("log", "repair", data, "--dry-run")
    assert result.exit_code == 1
    assert "rebuilt from the records" in result.stdout
    assert not (data / "orders-0" / LOG).with_suffix(".index").exists()
    assert kwire("log", "repair", data, "--yes").exit_code == 0
    assert (data / "orders-0" / LOG).with_suffix(".index").exists()
    assert kwire("log", "check", data).exit_code == 0


@pytest.mark.parametrize(("answer", "code", "done"), [("n", 1, False), ("y", 0, True)])
def test_on_a_terminal_a_repair_needs_confirmation(data: Path, answer: str, code: int, done: bool) -> None:
    index = (data / "orders-0" / LOG).with_suffix(".index")
    index.unlink()
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "kwire", "log", "repair", str(data)]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    output = b""
    try:
        while b"[y/N]" not in output:
            assert select([master], [], [], 30)[0], output
            output += os.read(master, 65536)
        os.write(master, answer.encode() + b"\n")
        while select([master], [], [], 30)[0]:
            try:
                output += os.read(master, 65536)
            except OSError:  # nobody has the other end open
                break
        assert process.wait(30) == code, output
    finally:
        process.kill()
        process.wait()
        os.close(master)
    assert index.exists() == done


def test_a_repaired_folder_is_served(data: Path) -> None:
    log = data / "orders-0" / LOG
    batches = [row for row in rows("dump", log) if row["type"] == "batch"]
    lost = batches[3]
    flip(log, lost["position"] + 80)
    last = sorted((data / "orders-0").glob("*.log"))[-1]
    with last.open("ab") as file:
        file.write(b"torn")
    result = kwire("log", "repair", data, "--yes")
    assert result.exit_code == 1
    assert "torn-tail" in result.stdout
    assert "findings left: 1" in result.stdout
    result = kwire("log", "repair", data, "--yes", "--drop-corrupt-ranges")
    assert result.exit_code == 0, result.stdout
    assert "repaired: sound" in result.stdout
    kept = [Path(line.removeprefix("kept ")) for line in result.stdout.splitlines() if line.startswith("kept ")]
    assert kept
    assert all(path.exists() for path in kept)
    with Broker(data_dir=data, settings=SETTINGS) as broker:
        offsets = consume(broker.address, ORDERS - lost["records_count"], group="another")
        assert sorted({*range(ORDERS)} - {*offsets}) == list(range(lost["base_offset"], lost["last_offset"] + 1))
        fill(broker.address, count=10)
    assert kwire("log", "check", data, "--no-notes").exit_code == 0


def test_partition_metadata_comes_back_from_the_metadata_log(data: Path) -> None:
    path = data / "orders-0" / "partition.metadata"
    content = path.read_bytes()
    path.unlink()
    assert kwire("log", "repair", data, "--yes").exit_code == 0
    assert path.read_bytes() == content


def test_a_lone_copy_of_a_partition_needs_no_lock(data: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copytree(data / "orders-0", alone / "orders-0")
    (alone / "orders-0" / LOG).with_suffix(".timeindex").unlink()
    assert kwire("log", "repair", alone / "orders-0", "--yes").exit_code == 0
    assert [path.name for path in alone.iterdir()] == ["orders-0"]


def test_a_disk_that_refuses_is_reported_without_a_traceback(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kwire_storage.disk.files import RealDisk

    (data / "orders-0" / LOG).with_suffix(".index").unlink()

    def refuse(_self: RealDisk, path: str, _data: bytes) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(RealDisk, "write_atomic", refuse)
    result = kwire("log", "repair", data, "--yes")
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert "run it again" in result.stderr
