"""Jobs and brokers killed at random: acknowledged records are in the tables and in the copies, once.

A producer writes numbered records to two topics, also while the broker is down. One job does four things at once: it
fills a table with a row for every record of the one, and a table by key of the other, with tombstones; it mirrors the
first topic to a second broker, exactly once; and it replays a third, which was written before. Now and then a value
cannot be decoded. The job and either broker are killed at random moments. A reader polls the first table all the time,
through pyiceberg: the rows of a snapshot are those of its offsets, and never fewer than before. In the end the job
processes the rest, `verify` compares, and so does an independent count. The copies are read by librdkafka, and compared
with the written records.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import attrs
from confluent_kafka import KafkaError, Message, Producer

from kwire.pipeline.tables.table_state import of_table, table_state
from kwire.pipeline.warehouse import NAMESPACE, Warehouse, errors_table_name, parse_warehouse
from testkit.basics.waiting import Deadline
from testkit.kills import harness
from testkit.kills.complaints import Complaints
from testkit.kills.harness import Lap, Scenario
from testkit.raw import topics
from testkit.servers.brokers import RestartableBroker, restartable_broker
from testkit.spark.records import Record, consume, produce

EVENTS, ACCOUNTS = "events", "accounts"
PAST, REPLAYED = "past", "replayed"
"""Written before the first kill, and replayed while there are kills."""
PARTITIONS = 3
KEYS = 40
RECORDS_A_SECOND = 400
SCHEMA = "n BIGINT, text STRING"
REPLAYED_PARTITIONS = 2
"""A replay has a task for each, which lasts as long as it does. The job has more threads than that for all the rest."""
REPLAYED_PER_KILL, REPLAYED_A_SECOND = 150, 50
"""The numbers of replayed records, with which the replay lasts about as long as the kills do."""

_READY_WITHIN_S = 180.0
_DRAINED_WITHIN_S = 120.0
_STOPPED_WITHIN_S = 600.0
"""A stop lets each of the three streams finish its batch, one after the other, for up to two minutes each."""
_VERIFIED_WITHIN_S_PER_KILL = 3.0
"""The more kills, the more there is to verify."""


@attrs.define
class Ledger:
    """The acknowledgements of the brokers: (partition, offset) of each record, and its value."""

    events: dict[tuple[int, int], int] = attrs.field(factory=dict)
    bad_events: set[tuple[int, int]] = attrs.field(factory=set)
    accounts: dict[bytes, tuple[int, int | None]] = attrs.field(factory=dict)
    """The offset and the number of the newest record, by key; None for a tombstone."""


@attrs.define
class Load:
    """A producer that continues after the broker's death; librdkafka retries unacknowledged records."""

    bootstrap: str
    seed: int
    complaints: Complaints
    ledger: Ledger = attrs.field(factory=Ledger)
    _stop: threading.Event = attrs.field(factory=threading.Event)

    def work(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 300_000,
                "log_level": 0,
            }
        )
        chance = random.Random(self.seed)
        n = 0
        while not self._stop.wait(1 / 50):
            for _ in range(RECORDS_A_SECOND // 50):
                n += 1
                self._event(producer, n, chance)
                self._account(producer, n, chance)
            producer.poll(0)
        left = producer.flush(_DRAINED_WITHIN_S)
        if left:
            self.complaints.add(f"{left} records were never acknowledged")

    def stop(self) -> None:
        self._stop.set()

    def _event(self, producer: Producer, n: int, chance: random.Random) -> None:
        bad = chance.random() < 0.01
        value = b"{broken" if bad else json.dumps({"n": n, "text": "x" * chance.randrange(50)}).encode()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.complaints.add(str(error))
                return
            position = (message.partition() or 0, message.offset() or 0)
            if bad:
                self.ledger.bad_events.add(position)
            else:
                self.ledger.events[position] = n

        producer.produce(EVENTS, value, key=str(n).encode(), on_delivery=delivered)

    def _account(self, producer: Producer, n: int, chance: random.Random) -> None:
        key = b"key%d" % chance.randrange(KEYS)
        deleted = chance.random() < 0.05
        value = None if deleted else json.dumps({"n": n, "text": None}).encode()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.complaints.add(str(error))
            elif self.ledger.accounts.get(key, (-1, None))[0] < (message.offset() or 0):
                self.ledger.accounts[key] = (message.offset() or 0, None if deleted else n)

        producer.produce(ACCOUNTS, value, key=key, on_delivery=delivered)


@attrs.define(eq=False)
class JobProcess:
    """`job_process.py`, in a process group of its own: Python and Java are killed together."""

    folder: Path
    bootstrap: str
    target: str
    commits: int = 0
    _log_begins: int = 0
    _process: subprocess.Popen[str] | None = None
    _reader: threading.Thread | None = None
    lines: list[dict[str, Any]] = attrs.field(factory=list)

    def start(self, *, once: bool = False, verify: tuple[str, ...] = ()) -> None:
        common = {"value": "json", "schema": SCHEMA, "interval_s": 0.2}
        spec = {
            "bootstrap": self.bootstrap,
            "once": once,
            "verify": list(verify),
            "tables": [
                {"topic": EVENTS, "table": EVENTS, **common},
                {"topic": ACCOUNTS, "table": ACCOUNTS, "mode": "upsert", **common},
            ],
            "target": self.target,
            "mirror": [EVENTS],
            "replay": {"topic": PAST, "to_topic": REPLAYED, "rate_per_s": None if once else REPLAYED_A_SECOND},
        }
        (self.folder / "job.json").write_text(json.dumps(spec), encoding="utf-8")
        command = [sys.executable, "-m", "testkit.spark.job_process", str(self.folder)]
        with (self.folder / "job.log").open("a", encoding="utf-8") as log:
            self._log_begins = log.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(self.folder)},  # what a killed job leaves goes with the scene
            )
        self._reader = threading.Thread(target=self._read, args=(self._process,))
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as out, suppress(ValueError):
            for line in out:
                found = json.loads(line)
                self.lines.append(found)
                self.commits += found.get("event") == "commit"

    def until_commits(self, more: int) -> None:
        """Waits for so many commits from now on."""
        wanted, deadline = self.commits + more, Deadline(_READY_WITHIN_S)
        while self.commits < wanted:
            assert deadline.not_over(f"{more} commits of the job; see {self.folder / 'job.log'}"), self.log()
            assert self._process is not None
            if self._process.poll() is not None:
                # A job that starts while no broker listens logs that and ends at once. Whoever runs it starts it again.
                assert "Connection refused" in self.log(self._log_begins), f"the job ended by itself: {self.log()}"
                self._wait()
                self.start()
            time.sleep(0.02)

    def kill(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._wait()

    def end(self, within_s: float = _DRAINED_WITHIN_S) -> None:
        """Waits for the end of one that ends by itself."""
        assert self._process is not None
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job has not ended within {within_s:g} s: {self.log()}") from None
        self._wait()
        assert code == 0, f"the job ended with {code}: {self.log()}"

    def stop(self) -> None:
        """Stops it as Ctrl-C does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self.end(_STOPPED_WITHIN_S)

    def _wait(self) -> None:
        assert self._process is not None
        assert self._reader is not None
        self._process.wait(30)
        self._reader.join(30)

    def log(self, begin: int = 0) -> str:
        """The end of what the job printed, from a place in it on."""
        return (self.folder / "job.log").read_text(encoding="utf-8")[begin:][-4000:]


@attrs.define(eq=False)
class Watcher:
    """Reads the table of events all the time."""

    warehouse: Warehouse
    complaints: Complaints
    polls: int = 0
    _stop: threading.Event = attrs.field(factory=threading.Event)

    def work(self) -> None:
        rows_before, took_s = 0, 0.0
        # A look takes longer the more commits there are. It gets a third of a core at the most, the job needs the rest.
        while not self._stop.wait(max(0.05, 2 * took_s)):
            began_s = time.monotonic()
            if not self.warehouse.exists() or (found := table_state(self.warehouse, EVENTS)) is None:
                continue
            if found.snapshot_id is None:
                continue
            rows = self._poll()
            if rows is not None:
                if rows < rows_before:
                    self.complaints.add(f"{rows} rows, and {rows_before} a moment before")
                rows_before = rows
                self.polls += 1
            took_s = time.monotonic() - began_s

    def _poll(self) -> int | None:
        catalog = self.warehouse.pyiceberg_catalog()
        try:
            table = catalog.load_table((NAMESPACE, EVENTS))
            errors = catalog.load_table((NAMESPACE, errors_table_name(EVENTS)))
            position = of_table(table).position
            if position is None:
                return None
            rows: int = table.scan().count()
            kafka = errors.scan(selected_fields=("kafka",)).to_arrow().to_pylist()
            bad = sum(1 for row in kafka if row["kafka"]["offset"] < position.offsets.get(row["kafka"]["partition"], 0))
            if rows + bad != sum(position.offsets.values()):
                self.complaints.add(f"{rows} rows and {bad} errors at {dict(position.offsets)}")
            return rows
        finally:
            catalog.close()

    def stop(self) -> None:
        self._stop.set()


@attrs.define
class Account(harness.Account):
    events: int = 0
    polls: int = 0
    replayed: int = 0

    @property
    def progress(self) -> str:
        return ", ".join(f"{times} of the {what}" for what, times in sorted(self.kills.items()))

    @property
    def outcome(self) -> str:
        return (
            f"{self.events:,} events in table and mirror once, each newest account, {self.replayed:,} replayed records "
            f"once and in order, {self.polls:,} looks"
        )


@attrs.define(eq=False)
class Jobs(Scenario[Account]):
    """One lap."""

    source: RestartableBroker
    target: RestartableBroker
    folder: Path
    account: Account = attrs.field(factory=Account)

    def run_lap(self, lap: Lap) -> None:
        source, target, account = self.source, self.target, self.account
        for topic in (EVENTS, ACCOUNTS, PAST):
            topics.create(source.bootstrap, topic, partitions=PARTITIONS)
        topics.create(target.bootstrap, REPLAYED, partitions=REPLAYED_PARTITIONS)
        past = [Record(b"%d" % n, key=b"key%d" % (n % KEYS)) for n in range(lap.count * REPLAYED_PER_KILL)]
        produce(source.bootstrap, PAST, past)
        load = Load(source.bootstrap, lap.chance.getrandbits(32), lap.complaints)
        job = JobProcess(self.folder, source.bootstrap, target.bootstrap)
        warehouse = parse_warehouse(str(self.folder / "warehouse"), {})
        watcher = Watcher(warehouse, lap.complaints)
        with _in_thread(load.work, load.stop), _in_thread(watcher.work, watcher.stop):
            job.start()
            job.until_commits(2)
            for killed in lap.kills(cycle(("source", "job", "target"))):
                time.sleep(lap.chance.random() * 1.5)
                if killed == "job":
                    job.kill()
                    job.start()
                else:
                    broker = source if killed == "source" else target
                    broker.kill()
                    time.sleep(lap.chance.random())
                    broker.start()
                # Some kills come before the first commit after the last one.
                if lap.chance.random() < 0.8:
                    job.until_commits(lap.chance.randrange(1, 5))
            load.stop()
            job.until_commits(1)
            job.stop()
        lap.complaints.check()
        job.start(once=True, verify=(EVENTS, ACCOUNTS))
        job.end(_DRAINED_WITHIN_S + lap.count * _VERIFIED_WITHIN_S_PER_KILL)
        reports = [line for line in job.lines if "sound" in line]
        assert [report["sound"] for report in reports] == [True, True], reports
        count(warehouse, load.ledger)
        compare_copies(source.bootstrap, target.bootstrap, load.ledger, past)
        account.events = len(load.ledger.events)
        account.polls = watcher.polls
        account.replayed = len(past)

    def state(self) -> str:
        return f"The job's folder is {self.folder}"


def count(warehouse: Warehouse, ledger: Ledger) -> None:
    """Through pyiceberg, against what was acknowledged."""
    catalog = warehouse.pyiceberg_catalog()
    try:
        rows = catalog.load_table((NAMESPACE, EVENTS)).scan().to_arrow().to_pylist()
        errors = catalog.load_table((NAMESPACE, errors_table_name(EVENTS))).scan().to_arrow().to_pylist()
        accounts = catalog.load_table((NAMESPACE, ACCOUNTS)).scan().to_arrow().to_pylist()
    finally:
        catalog.close()
    found = [((row["kafka"]["partition"], row["kafka"]["offset"]), row["value"]["n"]) for row in rows]
    assert sorted(found) == sorted(ledger.events.items()), "events are lost or doubled"
    bad = sorted((row["kafka"]["partition"], row["kafka"]["offset"]) for row in errors)
    assert bad == sorted(ledger.bad_events), "errors are lost or doubled"
    newest = sorted((key, n) for key, (_, n) in ledger.accounts.items() if n is not None)
    found_accounts = sorted((row["kafka"]["key"], row["value"]["n"]) for row in accounts)
    assert found_accounts == newest, "the accounts are not the newest ones"


def compare_copies(source: str, target: str, ledger: Ledger, past: Sequence[Record]) -> None:
    """The mirror has what the source has, in its order. The replayed topic has each record once, each key in order."""
    events = consume(source, EVENTS)
    assert {(it.partition, it.offset) for it in events} == {*ledger.events, *ledger.bad_events}
    theirs, mine = (
        [(it.partition, it.key, it.value, it.timestamp_ms) for it in found]
        for found in (events, consume(target, EVENTS))
    )
    assert mine == theirs, f"the mirror has {len(mine)} records, and the source {len(theirs)}"
    replayed = consume(target, REPLAYED)
    assert sorted(int(it.value or b"") for it in replayed) == list(range(len(past))), "the replay"
    by_key: dict[bytes | None, list[int]] = defaultdict(list)
    for it in replayed:
        by_key[it.key].append(int(it.value or b""))
    assert all(numbers == sorted(numbers) for numbers in by_key.values()), "a key is out of order"


@contextmanager
def _in_thread(work: Callable[[], None], stop: Callable[[], None]) -> Iterator[None]:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join()
    assert not failures, failures


@contextmanager
def scene() -> Iterator[Jobs]:
    """Two brokers to kill and a folder, which stays where something was wrong."""
    folder = Path(tempfile.mkdtemp(prefix="kwire-kills-"))
    with restartable_broker() as source, restartable_broker() as target:
        yield Jobs(source, target, folder)
    shutil.rmtree(folder)
