"""Queries against a broker and an index that holds a part of its topic, without Spark: pyiceberg writes the index."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from kwire_protocol.record_codec import Record

from devtools.suite.snapshots import Snapshot
from kwire.cli import main
from kwire.cli.querying import as_json_object
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.producing import Producer
from kwire.client.topics import NewTopic, create_topics
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.index.fields import NotIndexed, fields_to_json, read_fields, with_columns
from kwire.pipeline.index.plan import FIELDS_PROPERTY
from kwire.pipeline.index.query import Query, execute
from kwire.pipeline.tables.plan import ISOLATION_PROPERTY, MODE_PROPERTY, TOPIC_PROPERTY
from kwire.pipeline.tables.position import PROPERTY, TAG, Position
from kwire.pipeline.warehouse import NAMESPACE, Warehouse, index_table_name, parse_warehouse
from kwire.testing import Broker
from testkit.cli.json_page import check_all_keys
from testkit.cli.prompt import Prompt

TOPIC = "logs"
FIELDS = with_columns([("user.id", "BIGINT"), ("s", "STRING"), ("d", "DOUBLE"), ("b", "BOOLEAN")])
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_KAFKA = pa.struct(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("headers", _HEADERS),
    ]
)
_SCHEMA = pa.schema(
    [
        ("kafka", _KAFKA),
        ("user_id", pa.int64()),
        ("s", pa.string()),
        ("d", pa.float64()),
        ("b", pa.bool_()),
        ("value", pa.binary()),
    ]
)
AT_MS = 1_700_000_000_000
COUNT = 300
INDEXED = {0: 100, 1: 70}


@attrs.frozen
class Scene:
    bootstrap: str
    warehouse: Warehouse
    records: list[tuple[int, Record]]
    """All that can be indexed, with their partitions, by time."""
    committed_ms: int

    def execute(self, where: str | None = None, **options: Any) -> list[tuple[int, int]]:
        return [(it.partition, it.offset) for it in execute(self.query(where, **options), now_ms=AT_MS + 1000).records]

    def query(self, where: str | None = None, **options: Any) -> Query:
        plain = {"topic": TOPIC, "bootstrap": self.bootstrap, "table": index_table_name(TOPIC), "limit": 10_000}
        return Query(warehouse=self.warehouse, where=where, **{**plain, **options})

    def scan(self, meets: Callable[[dict[str, Any], Record, int], object]) -> list[tuple[int, int]]:
        """Scans by brute force: every record is looked at."""
        found = []
        for partition, it in self.records:
            value = {} if it.value is None else json.loads(it.value)
            if meets(value, it, partition):
                found.append((partition, it.offset))
        return found


def _values(dice: random.Random) -> Iterator[bytes | None]:
    for n in range(COUNT):
        if n % 29 == 0:
            yield None
        elif n % 31 == 0:
            yield b"{broken"
        elif n % 37 == 0:
            yield b'{"s": 5}'
        else:
            value: dict[str, Any] = {"user": {"id": dice.randrange(10)}, "n": n}
            value |= {"s": dice.choice(["a", "it's", "\u00e4\u20ac", ""])} if n % 3 else {}
            value |= {"d": dice.choice([1, 2.5, -3.5])} if n % 5 else {"d": None}
            value |= {"b": dice.choice([True, False])} if n % 2 else {"user": None}
            yield json.dumps(value).encode()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    dice = random.Random(7)
    sent: dict[int, list[Record]] = {0: [], 1: []}
    for n, value in enumerate(_values(dice)):
        key = None if n % 11 == 0 else b"\x00%d" % (n % 7)
        # Many of one moment, and not in the order of the offsets.
        at_ms = AT_MS + dice.randrange(40) * 10
        sent[n % 2].append(Record(len(sent[n % 2]), at_ms, key, value, [("h", b"\xff"), ("none", None)]))
    warehouse = parse_warehouse(str(tmp_path_factory.mktemp("w")), {})
    with Broker(settings={"auto.create.topics.enable": "false"}) as broker:
        with Cluster(broker.address) as cluster:
            create_topics(cluster, [NewTopic(TOPIC, 2, 1)])
            Producer(cluster).produce({TopicPartition(TOPIC, number): them for number, them in sent.items()})
            topic_id = str(cluster.topic(TOPIC).topic_id)
            position = Position(cluster.cluster_id or "", TOPIC, topic_id, INDEXED)
        committed_ms = write_index(warehouse, [(number, it) for number, them in sent.items() for it in them], position)
        everything = sorted(
            ((number, it) for number, them in sent.items() for it in them if _is_indexed(it)),
            key=lambda it: (it[1].timestamp, it[0], it[1].offset),
        )
        yield Scene(broker.address, warehouse, everything, committed_ms)


def _is_indexed(record: Record) -> bool:
    try:
        read_fields(record.value, FIELDS)
    except NotIndexed:
        return False
    return True


def write_index(warehouse: Warehouse, records: list[tuple[int, Record]], position: Position) -> int:
    """Writes three snapshots, and one of upkeep behind them. Returns when the job committed last, in ms."""
    rows: list[dict[str, Any]] = []
    for partition, it in records:
        if it.offset < position.offsets[partition] and _is_indexed(it):
            user, s, d, b = read_fields(it.value, FIELDS)
            headers = [{"key": name, "value": value} for name, value in it.headers]
            kafka: dict[str, Any] = {"partition": partition, "offset": it.offset, "timestamp": it.timestamp * 1000}
            kafka |= {"timestamp_type": 0, "key": it.key, "headers": headers}
            rows.append({"kafka": kafka, "user_id": user, "s": s, "d": d, "b": b, "value": it.value})
    warehouse.make()
    catalog = warehouse.pyiceberg_catalog()
    catalog.create_namespace_if_not_exists(NAMESPACE)
    properties = {
        TOPIC_PROPERTY: TOPIC,
        MODE_PROPERTY: "index",
        ISOLATION_PROPERTY: "read_committed",
        FIELDS_PROPERTY: fields_to_json(FIELDS),
    }
    table = catalog.create_table((NAMESPACE, index_table_name(TOPIC)), _SCHEMA, properties=properties)
    for part in range(3):
        found = {PROPERTY: attrs.evolve(position, offsets={0: 0, 1: 0} if part < 2 else position.offsets).to_json()}
        table.append(pa.Table.from_pylist(rows[part::3], schema=_SCHEMA), snapshot_properties=found)
    written = table.current_snapshot()
    assert written is not None
    table.manage_snapshots().create_tag(written.snapshot_id, TAG).commit()
    time.sleep(0.01)  # upkeep comes later than the job
    table.append(pa.Table.from_pylist([], schema=_SCHEMA))
    catalog.create_table((NAMESPACE, "plain"), _SCHEMA, properties={TOPIC_PROPERTY: TOPIC, MODE_PROPERTY: "append"})
    catalog.close()
    return written.timestamp_ms


def user(value: dict[str, Any]) -> Any:
    return (value.get("user") or {}).get("id")


@pytest.mark.parametrize(
    ("where", "meets"),
    [
        (None, lambda v, r, p: True),
        ("user.id = 4", lambda v, r, p: user(v) == 4),
        ("user.id != 4", lambda v, r, p: user(v) not in (None, 4)),
        ("NOT user.id = 4", lambda v, r, p: user(v) not in (None, 4)),
        ("user.id > 2 AND user.id <= 5", lambda v, r, p: user(v) is not None and 2 < user(v) <= 5),
        ("user.id BETWEEN 3 AND 4", lambda v, r, p: user(v) in (3, 4)),
        ("user.id IN (1, 7, 77)", lambda v, r, p: user(v) in (1, 7)),
        ("user.id NOT IN (1, 7)", lambda v, r, p: user(v) not in (None, 1, 7)),
        ("user.id = 4 OR s = 'it''s'", lambda v, r, p: user(v) == 4 or v.get("s") == "it's"),
        (
            "user.id = 4 OR s = 'it''s' OR offset IN (1, 2)",
            lambda v, r, p: user(v) == 4 or v.get("s") == "it's" or r.offset in (1, 2),
        ),
        ("(user.id = 4 OR user.id = 5) AND b = true", lambda v, r, p: user(v) in (4, 5) and v.get("b") is True),
        (
            "(user.id = 4 OR s IN ('it''s', 'a') AND d = 1 OR key = X'0033') AND offset < 90",
            lambda v, r, p: (
                (user(v) == 4 or (v.get("s") in ("it's", "a") and v.get("d") == 1) or r.key == b"\x003")
                and r.offset < 90
            ),
        ),
        ("NOT (user.id = 4 OR b = true)", lambda v, r, p: user(v) not in (None, 4) and v.get("b") is False),
        ("user.id IS NULL", lambda v, r, p: user(v) is None),
        ("user.id IS NOT NULL AND d IS NULL", lambda v, r, p: user(v) is not None and v.get("d") is None),
        ("s = '\u00e4\u20ac'", lambda v, r, p: v.get("s") == "\u00e4\u20ac"),
        ("s > 'a'", lambda v, r, p: v.get("s") is not None and v["s"] > "a"),
        ("s = ''", lambda v, r, p: v.get("s") == ""),
        ("d = 1", lambda v, r, p: v.get("d") == 1),
        ("d < 2.5", lambda v, r, p: v.get("d") is not None and v["d"] < 2.5),
        ("b = false", lambda v, r, p: v.get("b") is False),
        ("key = X'0033'", lambda v, r, p: r.key == b"\x003"),
        ("kafka.key > X'0033'", lambda v, r, p: r.key is not None and r.key > b"\x003"),
        ("key IS NULL", lambda v, r, p: r.key is None),
        ("partition = 1 AND offset >= 60 AND offset < 80", lambda v, r, p: p == 1 and 60 <= r.offset < 80),
        ("offset = 1", lambda v, r, p: r.offset == 1),
        ("offset = 149", lambda v, r, p: r.offset == 149),
        ("timestamp = 1700000000100", lambda v, r, p: r.timestamp == AT_MS + 100),
        ("timestamp IN ('2023-11-14T22:13:20.05Z', 1700000000060)", lambda v, r, p: r.timestamp - AT_MS in (50, 60)),
        ("timestamp > '2023-11-14T22:13:20.35Z'", lambda v, r, p: r.timestamp > AT_MS + 350),
        ("user.id = 99", lambda v, r, p: False),
        ("partition = 99999999999", lambda v, r, p: False),
    ],
)
def test_index_and_tail_together_answer_what_a_scan_would(
    scene: Scene, where: str | None, meets: Callable[..., object]
) -> None:
    assert scene.execute(where) == scene.scan(meets)


def test_since_and_until_bound_the_time(scene: Scene) -> None:
    found = scene.execute("user.id = 4", since_ms=AT_MS + 100, until_ms=AT_MS + 300)
    assert found == scene.scan(lambda v, r, p: user(v) == 4 and AT_MS + 100 <= r.timestamp < AT_MS + 300)
    assert found
    assert scene.execute(since_ms=AT_MS + 10_000) == []


def test_a_record_from_index_or_tail_has_every_part_of_its_kafka_record(scene: Scene) -> None:
    answer = execute(scene.query(), now_ms=AT_MS)
    by_place = {(partition, it.offset): it for partition, it in scene.records}
    for it in answer.records:
        sent = by_place[it.partition, it.offset]
        assert (it.key, it.value, it.timestamp_ms) == (sent.key, sent.value, sent.timestamp)
        assert (list(it.headers), it.timestamp_type) == (list(sent.headers), 0)
        assert list(it.fields.values()) == read_fields(sent.value, FIELDS)
        assert it.is_tail == (it.offset >= INDEXED[it.partition])
    assert {it.is_tail for it in answer.records} == {True, False}


def test_the_first_of_them_by_time_are_shown_and_that_there_are_more(scene: Scene) -> None:
    everything = scene.scan(lambda v, r, p: True)
    for limit in (1, 7, len(everything) - 1, len(everything)):
        answer = execute(scene.query(limit=limit), now_ms=AT_MS)
        assert [(it.partition, it.offset) for it in answer.records] == everything[:limit]
        assert answer.is_cut == (limit < len(everything))


def test_an_answer_reports_its_freshness(scene: Scene) -> None:
    freshness = execute(scene.query("user.id = 4"), now_ms=scene.committed_ms + 34_000).freshness
    assert freshness.age_s == 34.0
    assert freshness.offsets == INDEXED
    assert freshness.lag == {0: 50, 1: 80}
    assert freshness.rows == len([it for number, it in scene.records if it.offset < INDEXED[number]])
    behind = [n for n, _ in enumerate(_values(random.Random(7))) if n // 2 >= INDEXED[n % 2]]
    assert freshness.not_indexed == len([n for n in behind if n % 29 and (n % 31 == 0 or n % 37 == 0)])
    assert freshness.lost == ()


def test_a_tail_that_is_too_long_is_refused_and_may_be_left_out(scene: Scene) -> None:
    with pytest.raises(PipelineError, match="is 130 offsets behind topic logs, and --tail-limit is 129"):
        scene.execute(tail_limit=129)
    assert scene.execute(tail_limit=130) == scene.scan(lambda v, r, p: True)
    alone = scene.execute("user.id = 4", tail_limit=0, bootstrap="127.0.0.1:1")
    assert alone == scene.scan(lambda v, r, p: user(v) == 4 and r.offset < INDEXED[p])
    freshness = execute(scene.query(tail_limit=0), now_ms=AT_MS).freshness
    assert (freshness.lag, freshness.not_indexed) == (None, None)


# The command.


def flags_of(scene: Scene) -> tuple[str, ...]:
    return ("--to", str(scene.warehouse.folder), "-b", scene.bootstrap)


def query(scene: Scene, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["query", TOPIC, *flags_of(scene), *arguments])


def test_answers_as_people_see_them(scene: Scene, snapshot: Snapshot) -> None:
    prompt = Prompt(["query", TOPIC], flags_of(scene))
    prompt("--where", "offset = 3", "--since", "2020-01-01")
    prompt("--where", "user.id = 4 AND key IS NOT NULL", "--limit", "3")
    prompt("--where", "user.id = 99")
    prompt("--where", "user.id = 4", "--tail-limit", "0", "--limit", "1")
    snapshot("query", re.sub(r"is [\d,]+ s old", "is 60 s old", prompt.transcript))


def test_records_are_lines_of_json_and_freshness_goes_to_standard_error(scene: Scene) -> None:
    prompt = Prompt(["query", TOPIC], flags_of(scene))
    lines = prompt.json("--where", "user.id = 4 AND key IS NOT NULL", "--limit", "3")
    assert [(it["partition"], it["offset"]) for it in lines] == scene.scan(
        lambda v, r, p: user(v) == 4 and r.key is not None
    )[:3]
    assert json.loads(lines[0]["value"])["user"]["id"] == lines[0]["fields"]["user.id"] == 4
    assert lines[0]["headers"] == [
        {"name": "h", "value": "/w==", "value_encoding": "base64"},
        {"name": "none", "value": None},
    ]
    freshness = json.loads(prompt.stderr)
    binary = attrs.evolve(execute(scene.query("offset = 3"), now_ms=AT_MS).records[0], key=b"\xff", value=b"\xff")
    check_all_keys("query", [*lines, as_json_object(binary)])
    check_all_keys("query on standard error", [freshness])
    assert (freshness["offsets"], freshness["lag"], freshness["is_cut"]) == (
        {"0": 100, "1": 70},
        {"0": 50, "1": 80},
        True,
    )


def test_nothing_found_is_no_error(scene: Scene) -> None:
    prompt = Prompt(["query", TOPIC], flags_of(scene))
    assert prompt.json("--where", "user.id = 99") == []
    assert prompt("--where", "user.id = 99").stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--where", "gone = 1"), "'gone' is not indexed: user.id, s, d, b are"),
        (("--where", "s = '"), "cannot be read"),
        (("--since", "soon"), "is no moment"),
        (("--until", "soon"), "is no moment"),
        (("--tail-limit", "5"), "--tail-limit is 5"),
        (("-b", "127.0.0.1:1"), "--tail-limit 0 reads the index alone"),
        (("-b", "nonsense"), "--bootstrap-server"),
        (("--table", "plain"), "table plain is no index"),
        (("--table", "gone"), "index gone not found"),
        (("--to", "nowhere"), "index logs__index not found: there are no tables"),
        (("--to", "s3://b/w"), "Tables elsewhere need a catalog"),
    ],
)
def test_what_cannot_be_answered_is_one_line(scene: Scene, arguments: tuple[str, ...], message: str) -> None:
    done = query(scene, *arguments)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert done.stderr.startswith("kwire query: ")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_the_index_of_another_topic_is_refused(scene: Scene) -> None:
    with pytest.raises(PipelineError, match="logs__index is the index of topic logs, not of clicks"):
        scene.execute(topic="clicks")


def test_no_spark_is_loaded(scene: Scene) -> None:
    program = (
        "import sys\nfrom kwire.cli import main\n"
        f"try: main(['query', 'logs', '--to', {str(scene.warehouse.folder)!r}, '-b', '{scene.bootstrap}'])\n"
        "except SystemExit as end: assert not end.code, end\n"
        "assert 'pyspark' not in sys.modules and 'py4j' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True)


# A table that somebody else has changed.


def test_deletes_and_schemas_of_others_are_heeded(scene: Scene, tmp_path: Path) -> None:
    place = parse_warehouse(str(tmp_path / "w"), {})
    topic_id = ""
    with Cluster(scene.bootstrap) as cluster:
        position = Position(cluster.cluster_id or "", TOPIC, topic_id, {0: 150, 1: 150})
    write_index(place, scene.records, position)
    catalog = place.pyiceberg_catalog()
    table = catalog.load_table((NAMESPACE, index_table_name(TOPIC)))
    with table.update_schema() as update:
        update.rename_column("user_id", "was_user_id")
    with table.update_schema() as update:
        update.add_column("user_id", table.schema().find_type("was_user_id"))
    catalog.close()
    other = attrs.evolve(scene, warehouse=place)
    assert other.execute("user.id = 4") == []
    assert other.execute("s = 'a'") == scene.scan(lambda v, r, p: v.get("s") == "a")
