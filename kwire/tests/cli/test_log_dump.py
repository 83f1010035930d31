"""`kwire log dump`: its output, the files that it reads, its limits, and its errors."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import tracemalloc
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from kwire_protocol.internal.transaction_state import TransactionLogKey, TransactionLogValue
from kwire_protocol.records import Record, build_batch, build_control_batch, build_end_transaction_batch, versioned
from kwire_protocol.wire import Writer
from kwire_storage.disk.files import RealDisk

from devtools.suite.snapshots import Snapshot
from kwire.testing import Broker
from testkit.cli.json_page import check_all_keys
from testkit.cli.log_dirs import ORDERS, SETTINGS, fill, kwire, rows
from testkit.cli.prompt import Prompt
from testkit.cli.small_log_dir import damage_log_dir, write_log_dir
from testkit.fakes.transactions import FakeTransactions
from testkit.scenes.broker_in_trio import InTrio, with_broker
from testkit.scenes.offsets_in_transactions import end_transaction, txn_commit

LOG = "00000000000000000000.log"


def test_every_batch_of_a_partition_is_there_without_gaps(made_data: Path) -> None:
    batches = [row for row in rows("dump", made_data / "orders-0") if row["type"] == "batch"]
    assert batches[0]["base_offset"] == 0
    for one, two in pairwise(batches):
        assert two["base_offset"] == one["last_offset"] + 1
    assert batches[-1]["last_offset"] == ORDERS - 1
    assert sum(batch["records_count"] for batch in batches) == ORDERS
    assert len({batch["path"] for batch in batches}) > 1, "several segments"
    assert {batch["problem"] for batch in batches} == {None}
    sizes = Counter[str]()
    for batch in batches:
        assert batch["position"] == sizes[batch["path"]]
        sizes[batch["path"]] += batch["size_bytes"]
    assert {path: (made_data / path).stat().st_size for path in sizes} == sizes


def test_records_show_text_as_text_and_the_rest_as_base64(made_data: Path) -> None:
    records = [
        row
        for row in rows("dump", made_data / "orders-0", "--records", "--max-value-bytes", "0")
        if row["type"] == "record"
    ]
    assert [record["offset"] for record in records] == list(range(ORDERS))
    text, binary, empty, tombstone = records[:4]
    assert (text["key"], text["value"]) == ("key 0", "order 0" + "." * 900)
    assert (base64.b64decode(binary["value"]), binary["value_encoding"]) == (b"\x00\xff\x1b[31m", "base64")
    assert (empty["value"], tombstone["value"]) == ("", None)
    assert text["headers"][0] == {"name": "from", "value": "kitchen", "value_size_bytes": 7}
    assert text["headers"][1]["value_encoding"] == "base64"
    assert 0 <= records[-1]["timestamp_ms"] - text["timestamp_ms"] < 60_000


def test_dumps_as_people_see_them(tmp_path: Path, snapshot: Snapshot) -> None:
    write_log_dir(tmp_path)
    dump = Prompt(["log", "dump"], renamed={str(tmp_path): "data"})
    dump(str(tmp_path), "--records", "--max-value-bytes", "20")
    damage_log_dir(tmp_path)
    dump(str(tmp_path), "--records", "--no-batches", "--only", "log", "--only", "small")
    dump(str(tmp_path / "orders-0"), "--only", "log")
    snapshot("log-dump", dump.transcript)


def test_json_has_every_kind_of_row(tmp_path: Path) -> None:
    write_log_dir(tmp_path)
    sound = rows("dump", tmp_path, "--records", "--max-value-bytes", "2")
    damage_log_dir(tmp_path)
    check_all_keys("log dump", [*sound, *rows("dump", tmp_path, "--records")])


def test_long_values_are_cut(made_data: Path) -> None:
    record = next(
        row
        for row in rows("dump", made_data / "orders-0", "--records", "--max-value-bytes", "20")
        if row["type"] == "record"
    )
    assert (record["value"], record["value_cut"], record["value_size_bytes"]) == ("order 0.............", True, 907)


def test_no_control_character_of_a_client_reaches_the_terminal(made_data: Path) -> None:
    shown = kwire("log", "dump", made_data, "--records").stdout
    assert all(letter.isprintable() or letter == "\n" for letter in shown)


def test_every_kind_of_file_is_shown(made_data: Path) -> None:
    found = Counter(row["type"] for row in rows("dump", made_data))
    for kind in (
        "batch",
        "index_entry",
        "time_index_entry",
        "producer",
        "checkpoint",
        "leader_epoch",
        "partition_metadata",
        "meta_properties",
        "clean_shutdown",
    ):
        assert found[kind], kind
    assert "problem" not in found


def test_only_chooses_kinds_of_files(made_data: Path) -> None:
    assert {row["type"] for row in rows("dump", made_data, "--only", "index")} == {"index_entry"}
    assert {row["type"] for row in rows("dump", made_data, "--only", "snapshot")} == {"producer"}
    assert {row["type"] for row in rows("dump", made_data, "--only", "log", "--only", "timeindex")} == {
        "batch",
        "time_index_entry",
    }
    assert "batch" not in {row["type"] for row in rows("dump", made_data, "--only", "small")}


def test_a_dump_may_begin_at_an_offset_and_end_after_so_many(made_data: Path) -> None:
    (batch,) = rows("dump", made_data / "orders-0", "--only", "log", "--offset", "1777", "--max-batches", "1")
    assert batch["base_offset"] <= 1777 <= batch["last_offset"]
    shown = rows(
        "dump",
        made_data / "orders-0",
        "--only",
        "log",
        "--offset",
        "1777",
        "--max-batches",
        "1",
        "--records",
        "--no-batches",
    )
    assert [row["offset"] for row in shown] == list(range(1777, batch["last_offset"] + 1))
    bounded = rows("dump", made_data / "orders-0", "--only", "log", "--max-bytes", "200000")
    assert 200_000 <= sum(row["size_bytes"] for row in bounded) < 300_000


def test_single_files_are_shown(made_data: Path) -> None:
    log = made_data / "orders-0" / LOG
    assert {row["type"] for row in rows("dump", log)} == {"batch"}
    assert {row["type"] for row in rows("dump", log.with_suffix(".index"))} == {"index_entry"}
    assert {row["type"] for row in rows("dump", made_data / "recovery-point-offset-checkpoint")} == {"checkpoint"}
    assert {row["type"] for row in rows("dump", made_data / "orders-0" / "leader-epoch-checkpoint")} == {"leader_epoch"}


def test_commits_and_groups_are_decoded(made_data: Path) -> None:
    records = [row for row in rows("dump", made_data / "__consumer_offsets-0", "--records") if row["type"] == "record"]
    commit = next(row for row in records if row["decoded_key"]["type"] == "OffsetCommitKey")
    assert commit["decoded_key"] == {"type": "OffsetCommitKey", "group": "kitchen", "topic": "orders", "partition": 0}
    assert commit["decoded_value"]["offset"] == 100
    groups = [row["decoded_value"] for row in records if row["decoded_key"]["type"] == "GroupMetadataKey"]
    member = next(group["members"][0] for group in groups if group["members"])
    assert member["subscription"]["topics"] == ["orders"]
    assert member["assignment"]["assigned_partitions"] == [{"topic": "orders", "partitions": [0]}]
    raw = next(
        row
        for row in rows("dump", made_data / "__consumer_offsets-0", "--records", "--decoder", "none")
        if row["type"] == "record"
    )
    assert "decoded_key" not in raw
    assert raw["key_encoding"] == "base64"


def test_metadata_records_are_decoded(made_data: Path) -> None:
    records = [row for row in rows("dump", made_data / "__cluster_metadata-0", "--records") if row["type"] == "record"]
    assert records[0]["decoded_value"]["control_type"] == "LEADER_CHANGE"
    topics = [row["decoded_value"] for row in records if row["decoded_value"].get("type") == "TopicRecord"]
    metadata = next(row for row in rows("dump", made_data / "orders-0") if row["type"] == "partition_metadata")
    assert {"orders", "__consumer_offsets"} == {topic["name"] for topic in topics}
    assert metadata["topic_id"] in {topic["topic_id"] for topic in topics}


def test_transaction_records_and_markers_are_decoded(tmp_path: Path) -> None:
    key, value = Writer(), Writer()
    TransactionLogKey("payments").write(key, 0)
    TransactionLogValue(producer_id=7, producer_epoch=2, transaction_status=1, transaction_partitions=None).write(
        value, 1
    )
    folder = tmp_path / "__transaction_state-3"
    folder.mkdir()
    (folder / LOG).write_bytes(
        build_batch(
            [
                Record(0, 1000, versioned(0, key.getvalue()), versioned(1, value.getvalue())),
                Record(1, 1000, versioned(0, key.getvalue()), None),
                Record(2, 1000, b"no such key", None),
            ]
        )
        + build_end_transaction_batch(
            commit=False, producer_id=7, producer_epoch=2, coordinator_epoch=5, timestamp_ms=1000, base_offset=3
        )
        + build_control_batch(99, b"", timestamp_ms=1000, base_offset=4)
    )
    put, tombstone, unknown, marker, other = (
        row for row in rows("dump", folder, "--records") if row["type"] == "record"
    )
    assert put["decoded_key"] == {"type": "TransactionLogKey", "transactional_id": "payments"}
    assert (put["decoded_value"]["producer_id"], put["decoded_value"]["transaction_status"]) == (7, 1)
    assert (tombstone["decoded_value"], tombstone["tombstone"]) == (None, True)
    assert "not_decoded" in unknown
    assert marker["decoded_value"] == {"control_type": "ABORT", "coordinator_epoch": 5}
    assert other["decoded_value"] == {"control_type": "unknown"}


def test_offsets_in_transactions_and_their_markers_are_decoded(tmp_path: Path) -> None:
    async def scenario(broker: InTrio) -> None:
        broker.create_topic("orders")
        FakeTransactions().stand_in(broker.broker)
        await broker.call(txn_commit(5, {("orders", 1): 12}), 5)
        end_transaction(broker.broker, committed=True)
        await broker.call(txn_commit(5, {("orders", 1): 13}), 5)
        end_transaction(broker.broker, committed=False)

    with_broker(scenario, disk=RealDisk(str(tmp_path)), settings=["offsets.topic.num.partitions=1"])
    folder = tmp_path / "__consumer_offsets-0"
    batches = [row for row in rows("dump", folder) if row["type"] == "batch"]
    assert [(it["producer_id"], it["is_transactional"], it["is_control"]) for it in batches] == [
        (7, True, False),
        (7, True, True),
    ] * 2
    first, committed, second, aborted = (row for row in rows("dump", folder, "--records") if row["type"] == "record")
    assert first["decoded_key"] == {"type": "OffsetCommitKey", "group": "g", "topic": "orders", "partition": 1}
    assert [it["decoded_value"]["offset"] for it in (first, second)] == [12, 13]
    assert [it["decoded_value"]["control_type"] for it in (committed, aborted)] == ["COMMIT", "ABORT"]
    (summary,) = rows("check", folder)
    assert (summary["errors"], summary["warnings"]) == (0, 0)


def test_damage_is_shown_where_it_is(made_data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    shutil.copytree(made_data / "orders-0", folder)
    batches = [row for row in rows("dump", folder / LOG) if row["type"] == "batch"]
    content = bytearray((folder / LOG).read_bytes())
    rotten, torn = batches[2], batches[4]
    content[rotten["position"] + 100] ^= 1
    content[torn["position"] + 8 : torn["position"] + 40] = bytes(32)
    (folder / LOG).write_bytes(content)
    found = rows("dump", folder / LOG)
    bad = next(row for row in found if row.get("problem"))
    assert (bad["base_offset"], bad["position"]) == (rotten["base_offset"], rotten["position"])
    assert "CRC" in bad["problem"]
    damage = next(row for row in found if row["type"] == "damage")
    assert (damage["position"], damage["end_position"]) == (torn["position"], batches[5]["position"])
    assert [row for row in found if row["type"] == "batch" and not row["problem"]] == [
        batch for batch in batches if batch not in (rotten, torn)
    ]


def test_the_folder_of_a_running_broker_can_be_dumped(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, settings=SETTINGS) as broker:
        fill(broker.address, count=200)
        batches = [row for row in rows("dump", tmp_path / "orders-0") if row["type"] == "batch"]
        assert batches[-1]["last_offset"] == 199
        fill(broker.address, count=10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path / "nowhere", "does not exist"),
        (lambda path: path, "neither a log dir nor a partition's folder"),
        (lambda path: path / "photo.png", "is not a log file"),
    ],
)
@pytest.mark.parametrize("command", ["dump", "check", "repair"])
def test_what_is_no_folder_of_logs_is_rejected(tmp_path: Path, make: object, message: str, command: str) -> None:
    (tmp_path / "photo.png").write_bytes(b"")
    assert callable(make)
    result = kwire("log", command, make(tmp_path))
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_reader_that_goes_away_ends_the_dump_quietly(made_data: Path) -> None:
    command = [sys.executable, "-m", "kwire", "log", "dump", str(made_data), "--records"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(30)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_dump_holds_a_batch_and_not_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "large-0"
    folder.mkdir()
    value = bytes(1 << 20)
    with (folder / LOG).open("wb") as file:
        for number in range(48):
            file.write(build_batch([Record(0, 1000, None, value)], base_offset=number))
    kwire("log", "dump", folder, "--json", "--max-batches", "1")
    tracemalloc.start()
    try:
        from kwire.cli.log.dump import Dump, DumpOptions
        from kwire.cli.log.target import find_target

        count = sum(row["type"] == "record" for row in Dump(DumpOptions(records=True)).rows(find_target(folder)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 48
    assert peak < 16 << 20


def test_the_start_of_a_broker_does_not_pay_for_it() -> None:
    script = (
        "import sys, kwire.cli, kwire.node.running\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'rich' or 'inspection' in name])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.replace("'", '"')) == []
