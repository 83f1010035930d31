"""One run: the broker, its clients, the faults, and the checks in the end.

Every choice comes from the seed. The system decides when things coincide, so a run that failed is repeated only as far
as scheduling allows.
"""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import attrs
from kwire_protocol.errors import ErrorCode

from kwire.names.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from testkit.basics.small_tmpfs import NoTmpfs, SmallTmpfs
from testkit.basics.waiting import eventually
from testkit.clients.transactions.queries import end_offset, group_offset, is_stable, open_transactions
from testkit.everything_at_once import keeper, kept, passers_by, scraper, tinker, transactor, vanishing
from testkit.everything_at_once.admin import EARLIEST, LATEST, Admin
from testkit.everything_at_once.reading import read
from testkit.everything_at_once.transactions import Began, Ended, Transactions
from testkit.everything_at_once.under_test import CHECKPOINT_INTERVALS_MS, BrokerUnderTest
from testkit.everything_at_once.worker import Complaint, Counted, MakeWork, Message, Worker
from testkit.java.java_host import JavaHost
from testkit.kills import judging
from testkit.kills.complaints import Complaints
from testkit.kills.group_ledger import Spot
from testkit.kills.judging import Usage
from testkit.kills.sigkill.ledger import Ledger, Mark
from testkit.raw import topics
from testkit.raw.client import ConnectionClosed, RawClient
from testkit.raw.simple_requests import produce
from testkit.servers.brokers import SETTINGS

KEEPERS, TOPICS_OF_A_KEEPER = 3, 3
TRANSACTORS = 2
PRODUCERS, MEMBERS = 1, 1
CONNECTIONS_PER_DESCRIPTOR = 2
DISK_BYTES = 192 << 20
"""The size of the small file system of one log dir; a run writes less in all."""
STOPPED_IN_THE_END = 0.8
"""The share of the time after which the broker is left alone, to show what it does not release."""
SETTLES_WITHIN_S = 60.0
COMPLAINTS_ENOUGH = 20
_TICK_S = 0.02
_START_TAKES_S = 0.6
_REASON_WITHIN_S = 5.0

KEPT_CONFIG = {"segment.ms": "2000", "segment.bytes": str(1 << 20)}
COMPACTED_CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "200",
}
REBORN, REBORN_PARTITIONS = "reborn", 6
# Its records are of 1970.
REBORN_CONFIG = {"internal.segment.bytes": "2000", "segment.ms": "3600000", "retention.ms": "-1"}


@attrs.define
class Account:
    """The result of a run so far. `counts` are operations, by kind; `skipped` are those that the machine does not
    allow.
    """

    seed: int
    seconds: float
    counts: Counter[str] = attrs.field(factory=Counter)
    complaints: list[str] = attrs.field(factory=list)
    skipped: list[str] = attrs.field(factory=list)
    found_after_s: float | None = None
    """The time of the first complaint."""

    @property
    def records(self) -> int:
        return sum(count for what, count in self.counts.items() if what.startswith("records acknowledged"))


ReportPhase = Callable[[str, float], None]
"""A callback with the name of the phase, and the time that has passed."""


def run(
    seconds: float,
    seed: int,
    *,
    java: JavaHost,
    mistake: str | None = None,
    descriptors: int | None = None,
    keep: Path | None = None,
    report_phase: ReportPhase = lambda what, passed_s: None,
) -> Account:
    """`mistake` is one of `mistakes.MISTAKES`; `keep` gets data and log of a run that found something.

    With `descriptors`, the broker may have no more of them, and more connections than that come and go.
    """
    account = Account(seed, seconds)
    with folder_of_a_run() as root, ExitStack() as stack:
        disk = _small_disk(root, account, stack)
        folder = root / "third" if disk is None else disk.path / "third"
        conductor = Conductor(account, root, [root / "second", folder], disk, java, report_phase, descriptors)
        if mistake is not None:
            conductor.broker.make(mistake)
        try:
            conductor.run()
        except AssertionError as problem:
            conductor.complain(str(problem))
        finally:
            conductor.end()
            if keep is not None and account.complaints:
                shutil.copytree(root, keep, dirs_exist_ok=True, ignore=shutil.ignore_patterns("small"))
                shutil.copytree(folder, keep / "third", dirs_exist_ok=True)
    return account


@contextmanager
def folder_of_a_run() -> Iterator[Path]:
    """A temporary folder. When it is removed, the cleaner of a killed broker may still make its lock file there."""
    root = Path(tempfile.mkdtemp(prefix="kwire-everything-"))
    try:
        yield root
    finally:
        eventually(partial(_remove, root), f"{root} is removed")


def _remove(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _small_disk(root: Path, account: Account, stack: ExitStack) -> SmallTmpfs | None:
    mount = root / "small"
    mount.mkdir()
    try:
        return stack.enter_context(SmallTmpfs(mount, DISK_BYTES))
    except NoTmpfs as refused:
        account.skipped.append(f"full disks: no small tmpfs can be mounted here ({refused})")
        return None


@attrs.define(eq=False)
class Conductor:
    account: Account
    root: Path
    more_folders: Sequence[Path]
    disk: SmallTmpfs | None
    java: JavaHost
    report_phase: ReportPhase
    descriptors: int | None = None
    broker: BrokerUnderTest = attrs.field(init=False)
    random: random.Random = attrs.field(init=False)
    _began_s: float = attrs.field(factory=time.monotonic)
    _crew: dict[str, Worker] = attrs.field(factory=dict)
    _made: dict[str, Callable[[], MakeWork]] = attrs.field(factory=dict)
    """The factories of successors of killed workers, by name."""
    _vanished: set[int] = attrs.field(factory=set)
    _producers: int = 0
    _ledger: Ledger = attrs.field(init=False)
    _transactions: Transactions = attrs.field(init=False)
    _before: Usage | None = None

    def __attrs_post_init__(self) -> None:
        self.random = random.Random(self.account.seed)
        self.broker = BrokerUnderTest(
            self.root,
            *self.more_folders,
            complain=self.complain,
            guarded=self.random.random() < 0.5,
            descriptors=self.descriptors,
        )
        self._ledger = Ledger(complaints=Complaints(self.complain))
        self._transactions = Transactions(self.complain)

    def complain(self, what: str) -> None:
        if self.account.found_after_s is None:
            self.account.found_after_s = time.monotonic() - self._began_s
        if len(self.account.complaints) < COMPLAINTS_ENOUGH:
            self.account.complaints.append(what)

    # -- topics that are there all the time

    spots_of_kept = tuple((f"kept-{what}", number) for what in ("large", "flushed") for number in range(2))
    spots_of_vanishing = tuple(("vanishing", number) for number in range(2))
    spots_of_money = tuple(("money", number) for number in range(3))
    balances = ("balances", 0)
    group_of_kept, group_of_members = "kept-group", "members"

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def _seed(self) -> int:
        return self.random.getrandbits(32)

    def _make_topics(self) -> None:
        for topic in ("kept-large", "kept-flushed"):
            config = KEPT_CONFIG | ({"flush.messages": "1"} if topic == "kept-flushed" else {})
            topics.create(self.bootstrap, topic, partitions=2, config=config)
        topics.create(self.bootstrap, "vanishing", partitions=2, config=KEPT_CONFIG)
        topics.create(self.bootstrap, "money", partitions=3, config=KEPT_CONFIG)
        topics.create(self.bootstrap, "balances", partitions=1, config=COMPACTED_CONFIG)
        topics.create(self.bootstrap, REBORN, partitions=REBORN_PARTITIONS, config=REBORN_CONFIG)

    def _order_crew(self) -> None:
        folders = [str(folder) for folder in self.broker.data_dirs]
        bootstrap = self.bootstrap
        self._made["kept"] = lambda: kept.Order(bootstrap, self.spots_of_kept, self.group_of_kept, self._seed())
        for number in range(1, KEEPERS + 1):
            names = [f"keeper-{number}-{index}" for index in range(TOPICS_OF_A_KEEPER)]
            order = keeper.Order(bootstrap, number, names, folders, self._seed())
            self._made[f"keeper {number}"] = lambda order=order: order  # type: ignore[misc]
        for number in range(TRANSACTORS):
            self._made[f"transactor {number}"] = lambda number=number: self._transactor(number)  # type: ignore[misc]
        for number in range(PRODUCERS):
            self._made[f"producer {number}"] = self._producer
        for number in range(MEMBERS):
            self._made[f"member {number}"] = self._member
        fixed = [*self.spots_of_kept, *self.spots_of_vanishing, *self.spots_of_money, self.balances]
        own = [
            *((CONSUMER_OFFSETS, number) for number in range(int(SETTINGS["offsets.topic.num.partitions"]))),
            *((TRANSACTION_STATE, number) for number in range(int(SETTINGS["transaction.state.log.num.partitions"]))),
        ]
        self._made["scraper"] = lambda: scraper.Order(self.broker.metrics_url)
        if self.descriptors is not None:
            most = self.descriptors * CONNECTIONS_PER_DESCRIPTOR
            self._made["passers-by"] = lambda: passers_by.Order(bootstrap, most, self._seed())
        self._made["tinker"] = lambda: tinker.Order(bootstrap, fixed, own, folders, self._seed())

    def _transactor(self, number: int) -> transactor.Order:
        return transactor.Order(
            self.bootstrap,
            number,
            self._transactions.next_number(number),
            f"transactor-{number}",
            self.spots_of_money,
            self.balances,
            f"transactor-{number}",
            self._seed(),
        )

    def _producer(self) -> vanishing.ProducerOrder:
        self._producers += 1
        return vanishing.ProducerOrder(self.bootstrap, self.spots_of_vanishing, self._producers, self._seed())

    def _member(self) -> vanishing.MemberOrder:
        names = sorted({topic for topic, _ in [*self.spots_of_kept, *self.spots_of_vanishing]})
        return vanishing.MemberOrder(self.bootstrap, names, self.group_of_members, self._seed())

    # -- the run

    def run(self) -> None:
        self.report_phase("starting", 0.0)
        self.broker.start()
        self._make_topics()
        self._warm_up()
        self._before = self._usage()
        self._order_crew()
        for name in self._made:
            self._hire(name)
        eventually(self._all_are_ready, "all clients are at work", within_s=SETTLES_WITHIN_S)
        self._began_s = time.monotonic()
        self._run_with_troubles()
        if not self.account.complaints:
            self._judge()

    def _warm_up(self) -> None:
        """Makes the broker create its internal topics, so that their memory is not counted later."""
        for number in range(TRANSACTORS):
            worker = Worker("warm up", self._transactor(number), self._hear)
            eventually(partial(self._has_warmed_up, worker, number), "the first transactions")
            worker.begin("settle")
            worker.wait("settle")
            worker.close()

    def _has_warmed_up(self, worker: Worker, number: int) -> bool:
        worker.listen()
        self.broker.check_log()
        assert not self.account.complaints, "the first transactions went wrong"
        return self._transactions.next_number(number) > 1

    def _all_are_ready(self) -> bool:
        self._attend()
        return bool(self.account.complaints) or all(it.is_ready for it in self._crew.values())

    def _hire(self, name: str) -> None:
        self._crew[name] = Worker(name, self._made[name](), self._hear)

    def _hear(self, message: Message) -> None:
        match message:
            case Counted(counts):
                self.account.counts.update(counts)
            case Complaint(text):
                self.complain(text)
            case vanishing.Acknowledged(spot, offset, mark):
                self._ledger.acknowledge(spot, offset, mark)
            case vanishing.Going(positions):
                for spot, offset in positions.items():
                    self._ledger.group.go_to(spot, offset)
            case vanishing.Committed(offsets):
                self._ledger.group.commit(offsets)
            case Began():
                self._transactions.begin(message)
            case Ended():
                self._transactions.end(message)
            case _:
                raise AssertionError(message)

    def _run_with_troubles(self) -> None:
        account, chance = self.account, self.random
        end_s = self._began_s + account.seconds
        quiet_s = self._began_s + account.seconds * STOPPED_IN_THE_END
        next_s = time.monotonic() + chance.uniform(1, 3)
        while (now := time.monotonic()) < end_s and not account.complaints:
            self._attend()
            if now >= next_s:
                kind = chance.choices(list(_TROUBLES), list(_TROUBLES.values()))[0]
                if now < quiet_s or kind not in _WHICH_END_THE_BROKER:
                    self.report_phase(_name(kind), now - self._began_s)
                    self._befall(kind)
                next_s = time.monotonic() + chance.uniform(0.1, 2.5)
            self.report_phase("load", now - self._began_s)
            time.sleep(_TICK_S)

    def _befall(self, kind: Callable[[Conductor], None]) -> None:
        try:
            kind(self)
        except (AssertionError, ConnectionClosed, OSError) as error:
            # If the broker has ended, or is about to, its own message is the better complaint.
            until = time.monotonic() + _REASON_WITHIN_S
            while not self.account.complaints and time.monotonic() < until:
                self._attend()
                time.sleep(_TICK_S)
            self.complain(f"{_name(kind)}: {error!r}")

    def _attend(self) -> None:
        for name, worker in list(self._crew.items()):
            worker.listen()
            if worker.is_alive:
                continue
            del self._crew[name]
            worker.kill()
            if worker.exit_code == -signal.SIGALRM:
                self.account.counts["clients that were stuck"] += 1
                self._hire(name)
            else:
                self.complain(f"{name} ended")
        self.broker.check_log()
        if self.broker.pid is None:
            self.complain(f"the broker ended by itself; it said: {self._last_words()}")

    def _last_words(self) -> str:
        return self.broker.log_file.read_text(errors="replace")[-1_500:]

    # -- what befalls them

    def _kill_broker(self) -> None:
        self.broker.kill()
        self._start()
        self.account.counts["SIGKILLs of the broker"] += 1

    def _kill_broker_twice(self) -> None:
        """Once more while it starts."""
        self.broker.kill()
        self.broker.begin_start()
        time.sleep(self.random.random() * _START_TAKES_S)  # the moment is what is tried
        self.broker.kill()
        self._start()
        self.account.counts["SIGKILLs of the broker"] += 2

    def _restart_broker(self) -> None:
        self._stop()
        self._start()
        self.account.counts["clean restarts"] += 1

    def _stop(self) -> None:
        self.broker.stop()
        self.broker.check_log()
        if self.broker.exit_code != 0:
            self.complain(f"the broker was stopped, and ended with {self.broker.exit_code}: {self._last_words()}")

    def _start(self) -> None:
        self.broker.set_checkpoint_interval(self.random.choice(CHECKPOINT_INTERVALS_MS))
        self.broker.start()
        self.broker.check_log()

    def _fill_disk(self) -> None:
        if self.disk is None:
            return
        self.disk.fill(self.random.choice((0, 100_000, 2_000_000)))
        self.account.counts["full disks"] += 1
        until = time.monotonic() + self.random.uniform(0.1, 2)
        ending = self.random.random() < 0.3
        while time.monotonic() < until:
            self._attend()
            time.sleep(_TICK_S)
        if ending:
            self.broker.kill()
            self.account.counts["SIGKILLs of the broker"] += 1
            if self.random.random() < 0.5:
                self._start()
                self.disk.free()
            else:
                self.disk.free()
                self._start()
        else:
            self.disk.free()

    def _kill_over_a_rebirth(self) -> None:
        """A topic that began above 0 is deleted, and made again, and a moment later the broker is killed."""
        admin, numbers = Admin(self.bootstrap, _REASON_WITHIN_S), list(range(self.random.randrange(3)))
        spots = [(REBORN, number) for number in range(REBORN_PARTITIONS)]
        try:
            with RawClient(self.bootstrap) as client:
                for spot in spots:
                    for _ in range(10):
                        _append(client, spot, bytes(300))
                    admin.delete_records(spot, admin.offset(spot, LATEST) - 1)
                time.sleep(self.random.random() * 0.1)  # in which a checkpoint may be written, or begun
                admin.delete(REBORN)
                admin.create(REBORN, REBORN_PARTITIONS, REBORN_CONFIG)
                offsets = {spot: [_append(client, spot, b"%d" % number) for number in numbers] for spot in spots}
            self.broker.kill()
            self._start()
            bounds = {spot: (admin.offset(spot, EARLIEST), admin.offset(spot, LATEST)) for spot in spots}
        finally:
            admin.close()
        self.account.counts["SIGKILLs of the broker"] += 1
        for spot in spots:
            if offsets[spot] != numbers or bounds[spot] != (0, len(numbers)):
                self.complain(
                    f"{spot} was deleted and made again; it took records at {offsets[spot]}, and after a SIGKILL it "
                    f"begins and ends at {bounds[spot]}"
                )

    def _kill_client(self) -> None:
        name = self.random.choice([it for it in self._crew if it.startswith(("transactor", "producer", "member"))])
        self._crew[name].kill()
        if name.startswith("producer"):
            self._vanished.update(range(1, self._producers + 1))
        self._hire(name)
        self.account.counts["SIGKILLs of clients"] += 1

    # -- the end

    def _judge(self) -> None:
        complain = self.complain
        self.report_phase("settling", self.account.seconds)
        for name in [it for it in self._crew if it.startswith("transactor")]:
            self._crew.pop(name).kill()
        self._all("settle")
        for name in [it for it in self._crew if not it.startswith(("kept", "keeper"))]:
            self._crew.pop(name).close()
        self._rest()
        self.report_phase("judging", self.account.seconds)
        self._judge_all()
        if self.account.complaints:
            return
        assert self._before is not None
        self.report_phase("looking at what the broker keeps", self.account.seconds)
        self._check_usage()
        self._wait_for_moves()
        self._stop()
        folders = self.broker.data_dirs
        with self._in_reach() as copied:
            self.report_phase("kwire log check", self.account.seconds)
            self.account.counts["partitions checked"] += judging.check_logs(copied, complain)
            self.report_phase("DumpLogSegments", self.account.seconds)
            self.account.counts["files dumped"] += judging.dump_logs(self.java, copied, complain)
        self.report_phase("judging after a stop", self.account.seconds)
        self._start()
        self._judge_all()
        self.report_phase("judging after a SIGKILL", self.account.seconds)
        self.broker.kill()
        self._start()
        self._judge_all()
        self.report_phase("deleting everything", self.account.seconds)
        self._all("leave")
        for worker in self._crew.values():
            worker.close()
        self._crew.clear()
        try:
            eventually(lambda: not judging.left_over(folders), "what was deleted is removed")
        except AssertionError:
            for path in judging.left_over(folders)[:5]:
                complain(f"what was deleted is not removed: {path} is there")
        self._stop()
        with self._in_reach() as copied:
            self.account.counts["partitions checked"] += judging.check_logs(copied, complain)
        if self.descriptors is not None:
            self.account.counts["times that the broker had no descriptor for a connection"] = self.broker.was_full

    def _wait_for_moves(self) -> None:
        """A stop would leave copies that are half done. A log of thousands of segments takes minutes."""
        seen: dict[str, int] = {}
        until = time.monotonic() + SETTLES_WITHIN_S
        while copies := judging.copies(self.broker.data_dirs):
            if copies != seen:
                seen, until = copies, time.monotonic() + SETTLES_WITHIN_S
            assert time.monotonic() < until, f"the last moves make no progress: {copies}"
            time.sleep(_TICK_S)

    @contextmanager
    def _in_reach(self) -> Iterator[list[Path]]:
        """The log dirs; of the one on a file system that only its own process sees, a copy."""
        folders = list(self.broker.data_dirs)
        if self.disk is None:
            yield folders
            return
        with tempfile.TemporaryDirectory(prefix="kwire-everything-") as made:
            yield [*folders[:-1], Path(shutil.copytree(folders[-1], Path(made, "third")))]

    def _all(self, command: str) -> None:
        for worker in self._crew.values():
            worker.begin(command)
        for worker in self._crew.values():
            worker.wait(command)
        self.broker.check_log()

    def _rest(self) -> None:
        def rests() -> bool:
            return not open_transactions(self.bootstrap) and all(
                is_stable(self.bootstrap, spot) for spot in [*self.spots_of_money, self.balances]
            )

        eventually(rests, "all transactions are over")

    def _judge_all(self) -> None:
        self._all("judge")
        self._judge_vanished()
        self._judge_transactions()
        self.account.counts["judgements"] += 1

    def _judge_vanished(self) -> None:
        ledger = self._ledger
        for spot in self.spots_of_vanishing:
            end = end_offset(self.bootstrap, spot, committed=False)
            records = ((int(it.offset() or 0), bytes(it.value() or b"")) for it in read(self.bootstrap, spot, end))
            ledger.check_end(spot, ledger.end_of(spot), end)
            ledger.check_log(spot, end, records, killed=range(self._producers + 1), is_consumed=False)
        known = ledger.group.known()
        ledger.check_committed(
            known, {spot: group_offset(self.bootstrap, self.group_of_members, spot) or 0 for spot in known}
        )

    def _judge_transactions(self) -> None:
        bootstrap = self.bootstrap
        records = {spot: list(self._marks(spot)) for spot in self.spots_of_money}
        offsets = {
            number: group_offset(bootstrap, f"transactor-{number}", self.spots_of_money[0])
            for number in range(TRANSACTORS)
        }
        self._transactions.check(records, self._marks(self.balances), offsets)

    def _marks(self, spot: Spot) -> Iterator[Mark]:
        end = end_offset(self.bootstrap, spot, committed=True)
        for message in read(self.bootstrap, spot, end, committed=True):
            try:
                yield Mark.of(bytes(message.value() or b""))
            except ValueError as error:
                self.complain(f"{spot} at {message.offset()}: {error}")

    def _check_usage(self) -> None:
        before = self._before
        assert before is not None
        problems: list[str] = []

        def is_as_before() -> bool:
            problems.clear()
            judging.check_usage(before, self._usage(), problems.append)
            return not problems

        try:
            eventually(is_as_before, "the broker keeps nothing")
        except AssertionError:
            for problem in problems:
                self.complain(problem)
        self.account.counts["MiB of memory before"] = before.resident_bytes >> 20
        self.account.counts["MiB of memory after"] = self._usage().resident_bytes >> 20
        self.account.counts["descriptors before"] = before.descriptors.total()
        self.account.counts["descriptors after"] = self._usage().descriptors.total()

    def _usage(self) -> Usage:
        pid = self.broker.pid
        assert pid is not None, "the broker runs"
        return Usage.of(pid)

    def end(self) -> None:
        """Ends all that still runs."""
        for worker in self._crew.values():
            worker.kill()
        self.broker.check_log()
        self.broker.kill()


_TROUBLES: dict[Callable[[Conductor], None], float] = {
    Conductor._kill_broker: 3,
    Conductor._kill_broker_twice: 1,
    Conductor._kill_over_a_rebirth: 4,
    Conductor._restart_broker: 1.5,
    Conductor._fill_disk: 2,
    Conductor._kill_client: 4,
}
_WHICH_END_THE_BROKER = {
    Conductor._kill_broker,
    Conductor._kill_broker_twice,
    Conductor._kill_over_a_rebirth,
    Conductor._restart_broker,
    Conductor._fill_disk,
}


def _append(client: RawClient, spot: Spot, value: bytes) -> int:
    """Returns the offset."""
    (answer,) = client.call(produce(value, topic=spot[0], index=spot[1]), 9).responses[0].partition_responses
    assert answer.error_code == ErrorCode.NONE, f"{spot}: {ErrorCode(answer.error_code).name}"
    return int(answer.base_offset)


def _name(trouble: Callable[[Conductor], None]) -> str:
    return trouble.__name__.strip("_").replace("_", " ")
