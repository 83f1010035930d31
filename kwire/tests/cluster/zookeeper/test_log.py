"""The metadata log in ZooKeeper: the effect of appends without an answer, and what a snapshot replaces.

Over a ZooKeeper in memory. `test_ordered_log.py` has what all forms of the log promise, over a real one.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from kwire_storage.errors import CorruptLogError

from kwire.cluster.zookeeper import log_nodes, snapshot_nodes
from kwire.cluster.zookeeper.keeper import Create, Found, SetData, TimedOutError, ZooKeeperError
from kwire.cluster.zookeeper.log_nodes import LOG, node_of
from kwire.cluster.zookeeper.metadata_log import ZooKeeperLog
from kwire.cluster.zookeeper.snapshot_nodes import SNAPSHOTS
from kwire.metadata.log import AppendConflict, LogTruncated
from kwire.metadata.log_batches import READ_BYTES
from testkit.basics.futures import at_once
from testkit.fakes.keeper import FakeKeeper, FakeZooKeeper, Loss, losing
from testkit.metadata.harness import NOW_MS


class Ids:
    """Different for each log of a test."""

    def __init__(self) -> None:
        self.last = 0

    def __call__(self) -> bytes:
        self.last += 1
        return self.last.to_bytes(16, "big")


IDS = Ids()


def opened(server: FakeZooKeeper) -> tuple[ZooKeeperLog, FakeKeeper]:
    keeper = FakeKeeper(server)
    return ZooKeeperLog.open(keeper, lambda: NOW_MS, IDS), keeper


def append(log: ZooKeeperLog, *values: bytes) -> None:
    at_once(log.append(values, expected_end_offset=log.end_offset))


def values_of(log: ZooKeeperLog, offset: int = 0) -> list[bytes]:
    found = []
    while (read := at_once(log.read(offset))).next_offset != offset:
        found += [value for _, value in read.records]
        offset = read.next_offset
    return found


def everything(server: FakeZooKeeper) -> list[bytes]:
    """Returns the state of a node that starts now."""
    log, _ = opened(server)
    snapshot = at_once(log.read_snapshot())
    if snapshot is None:
        return values_of(log)
    return [*snapshot.values, *values_of(log, snapshot.end_offset)]


def snapshot(log: ZooKeeperLog) -> None:
    at_once(log.write_snapshot(everything(server_of(log)), end_offset=log.end_offset))


def server_of(log: ZooKeeperLog) -> FakeZooKeeper:
    assert isinstance(log.keeper, FakeKeeper)
    return log.keeper.server


# Appends whose answer is lost


@pytest.mark.parametrize("losses", [(Loss.BEFORE,), (Loss.AFTER,), (Loss.BEFORE, Loss.AFTER), (Loss.BEFORE,) * 5])
def test_an_append_that_is_not_answered_has_happened_once(losses: tuple[Loss, ...]) -> None:
    log, keeper = opened(FakeZooKeeper())
    append(log, b"a")
    keeper.loses = losing(f"Create {LOG}/", *losses)
    append(log, b"b", b"c")
    assert values_of(log) == everything(keeper.server) == [b"a", b"b", b"c"]
    assert log.end_offset == 3


def test_an_append_that_is_not_answered_and_finds_another_ones_records_is_a_conflict() -> None:
    server = FakeZooKeeper()
    log, keeper = opened(server)
    other, _ = opened(server)
    keeper.loses = losing(f"Create {LOG}/", Loss.BEFORE)
    keeper.before = once(f"get {node_of(0)}", lambda: append(other, b"other"))
    with pytest.raises(AppendConflict):
        append(log, b"a")
    assert everything(server) == [b"other"]


def test_an_append_that_another_one_was_faster_with_while_it_was_not_answered_is_a_conflict() -> None:
    server = FakeZooKeeper()
    log, keeper = opened(server)
    other, _ = opened(server)
    keeper.loses = losing(f"Create {LOG}/", Loss.BEFORE)
    keeper.before = once(f"Create {LOG}/", lambda: append(other, b"other"), skip=1)
    with pytest.raises(AppendConflict):
        append(log, b"a")
    assert everything(server) == [b"other"]


def test_a_connection_that_is_lost_while_reading_leaves_nothing_in_doubt() -> None:
    server = FakeZooKeeper()
    log, keeper = opened(server)
    other, _ = opened(server)
    keeper.loses = losing(f"get {LOG}", Loss.BEFORE, Loss.AFTER)

    def others() -> None:
        append(other, b"other")
        snapshot(other)

    keeper.before = once(f"get {LOG}", others, skip=2)
    with pytest.raises(AppendConflict):
        append(log, b"a")


def once(what: str, call: Callable[[], object], skip: int = 0) -> Callable[[str], None]:
    """Makes a `before` that calls `call` before one operation whose description has this text."""
    left = skip

    def before(described: str) -> None:
        nonlocal left
        if what in described:
            left -= 1
            if left == -1:
                call()

    return before


def test_an_append_without_a_connection_has_not_happened_and_one_without_an_answer_is_unknown() -> None:
    log, keeper = opened(FakeZooKeeper())
    keeper.loses = lambda _: Loss.BEFORE
    with pytest.raises(TimedOutError, match=r"timed out$"):
        append(log, b"a")
    keeper.loses = lambda what: Loss.AFTER if "commit" in what else Loss.BEFORE if node_of(0) in what else None
    with pytest.raises(TimedOutError, match="it is unknown whether the records were appended"):
        append(log, b"b")
    keeper.loses = lambda _: None
    with pytest.raises(AppendConflict):
        append(log, b"c")
    assert values_of(log) == [b"b"]


def test_whether_an_append_happened_that_a_snapshot_has_replaced_is_unknown() -> None:
    server = FakeZooKeeper()
    log, keeper = opened(server)
    other, _ = opened(server)
    keeper.loses = losing(f"Create {LOG}/", Loss.AFTER)

    def others() -> None:
        at_once(other.refresh())
        append(other, b"b")
        snapshot(other)

    keeper.before = once(f"get {node_of(0)}", others)
    with pytest.raises(ZooKeeperError, match="it is unknown whether the records at offset 0 were appended"):
        append(log, b"a")
    assert everything(server) == [b"a", b"b"]


# Snapshots, and writers that are behind them


def test_a_writer_cannot_append_where_records_were_that_a_snapshot_has_replaced() -> None:
    server = FakeZooKeeper()
    log, _ = opened(server)
    slow, _ = opened(server)
    append(log, b"a")
    append(log, b"b")
    snapshot(log)
    assert server.names(LOG) == []
    with pytest.raises(AppendConflict):
        at_once(slow.append([b"slow"], expected_end_offset=0))
    assert slow.end_offset == 2
    append(slow, b"c")
    assert everything(server) == [b"a", b"b", b"c"]


def test_a_snapshot_that_is_written_during_an_append_leaves_no_gap_for_it() -> None:
    server = FakeZooKeeper()
    log, keeper = opened(server)
    other, _ = opened(server)
    append(log, b"a")
    at_once(other.refresh())
    keeper.before = once(f"Create {LOG}/", lambda: snapshot(other))
    append(log, b"b")
    assert everything(server) == [b"a", b"b"]

    def append_and_replace() -> None:
        append(other, b"c")
        snapshot(other)

    at_once(other.refresh())
    keeper.before = once(f"Create {LOG}/", append_and_replace)
    with pytest.raises(AppendConflict):
        append(log, b"slow")
    assert everything(server) == [b"a", b"b", b"c"]


def test_a_reader_behind_a_snapshot_gets_the_later_start_of_the_log() -> None:
    server = FakeZooKeeper()
    log, _ = opened(server)
    behind, _ = opened(server)
    append(log, b"a")
    append(log, b"b")
    snapshot(log)
    with pytest.raises(LogTruncated):
        at_once(behind.read(0))
    at_once(behind.refresh())
    assert behind.end_offset == 2
    assert everything(server) == [b"a", b"b"]


def test_a_newer_snapshot_removes_older_ones_and_what_an_unfinished_one_left() -> None:
    server = FakeZooKeeper()
    log, keeper = opened(server)
    append(log, b"a")
    snapshot(log)
    append(log, b"b")
    keeper.server.commit((Create(snapshot_nodes.snapshot_node(2)), Create(f"{SNAPSHOTS}/{2:020}/ab-00000")), 1)
    append(log, b"c")
    snapshot(log)
    assert server.names(SNAPSHOTS) == [f"{3:020}"]
    assert server.names(LOG) == []


def test_half_a_snapshot_is_not_read_and_does_not_keep_others_from_writing_it(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeZooKeeper()
    log, _ = opened(server)
    append(log, b"a")
    server.commit((Create(snapshot_nodes.snapshot_node(1)), Create(f"{snapshot_nodes.snapshot_node(1)}/ab-00000")), 1)
    assert at_once(log.read_snapshot()) is None
    snapshot(log)
    assert server.names(LOG) == []
    assert len(server.names(snapshot_nodes.snapshot_node(1))) == 1
    assert everything(server) == [b"a"]
    assert caplog.messages == []


def test_of_two_writers_of_the_same_snapshot_one_is_first_and_the_other_leaves_nothing() -> None:
    server = FakeZooKeeper()
    log, keeper = opened(server)
    other, _ = opened(server)
    append(log, b"a")
    at_once(other.refresh())
    keeper.before = once("SetData", lambda: snapshot(other))
    snapshot(log)
    [node] = server.names(SNAPSHOTS)
    assert len(server.names(f"{SNAPSHOTS}/{node}")) == 1
    assert everything(server) == [b"a"]


def test_a_snapshot_of_several_chunks_that_is_replaced_while_it_is_read_is_read_again() -> None:
    server = FakeZooKeeper()
    log, keeper = opened(server)
    append(log, *[b"x" * 90_000] * 9)
    snapshot(log)
    assert len(server.names(snapshot_nodes.snapshot_node(9))) == 2
    other, _ = opened(server)

    def replace() -> None:
        append(other, b"b")
        snapshot(other)

    keeper.before = once("-00001", replace)
    found = at_once(log.read_snapshot())
    assert found is not None
    assert list(found.values) == [*[b"x" * 90_000] * 9, b"b"]


def test_an_older_snapshot_is_not_taken_for_one_that_cannot_be_read() -> None:
    server = FakeZooKeeper()
    log, _ = opened(server)
    append(log, b"a")
    snapshot(log)
    older = {path: found for path, found in server.nodes.items() if path.startswith(SNAPSHOTS)}
    append(log, b"b")
    snapshot(log)
    [path] = [it for it in server.nodes if it.endswith("-00000")]
    server.nodes |= {**older, path: attrs.evolve(server.nodes[path], data=b"damaged")}
    with pytest.raises(CorruptLogError, match="begins at 2, and no snapshot reaches it"):
        at_once(log.read_snapshot())


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("is_done", [False, True])
def test_a_node_may_be_killed_at_any_operation(is_done: bool) -> None:
    plenty = 1000
    used = plenty - live_and_die(FakeZooKeeper(), plenty, is_done)[2]
    lengths = set()
    for number in range(used + 1):
        server = FakeZooKeeper()
        witness, _ = opened(server)
        append(witness, b"first")
        acknowledged, under_way, _ = live_and_die(server, number, is_done)
        possible = [[b"first", *acknowledged], [b"first", *acknowledged, under_way]]
        found = everything(server)
        assert found in possible, number
        lengths.add(len(found))
        at_once(witness.refresh())
        append(witness, b"last")
        snapshot(witness)
        assert everything(server) == [*found, b"last"], number
        assert server.names(LOG) == []
        assert len(server.names(SNAPSHOTS)) == 1
    assert lengths == ({2, 3, 4} if is_done else {1, 2, 3, 4})


def live_and_die(server: FakeZooKeeper, operations: int, is_done: bool) -> tuple[list[bytes], bytes, int]:
    """A node that appends and writes a snapshot, and is killed at the commit of that number, which may be done still.

    Returns the values that were acknowledged, the one that was not, and how many commits were left.
    """
    left = operations
    log, keeper = opened(server)

    def count(what: str) -> None:
        nonlocal left
        left -= what.startswith("commit")
        if left < 0 and not is_done:
            raise Killed

    def die(_what: str) -> None:
        if left < 0:
            raise Killed

    keeper.before, keeper.after = count, die
    acknowledged: list[bytes] = []
    under_way = b""
    try:
        for value in (b"a", b"b", b"", b"c"):
            if not value:
                known = everything(server)
                at_once(log.write_snapshot(known, end_offset=log.end_offset))
                continue
            under_way = value
            append(log, value)
            acknowledged.append(value)
            under_way = b""
    except Killed:
        pass
    return acknowledged, under_way, left


# Nodes


def test_a_large_append_is_several_nodes_and_is_there_as_a_whole() -> None:
    server = FakeZooKeeper()
    log, _ = opened(server)
    values = [bytes([number]) * 90_000 for number in range(10)]
    append(log, *values)
    assert len(server.names(LOG)) == 2
    assert max(len(it.data) for it in server.nodes.values()) < log_nodes.MOST_NODE_BYTES
    assert at_once(log.read(0)).next_offset == 10
    assert values_of(log) == values
    with pytest.raises(ZooKeeperError, match="ask for fewer topics, partitions or configurations in one request"):
        append(log, *[b"x" * 100_000] * 10)
    append(log, b"x" * 600_000)
    assert values_of(log, 10) == [b"x" * 600_000]


def test_a_long_log_is_read_in_pieces_that_end_with_an_append() -> None:
    log, _ = opened(FakeZooKeeper())
    for _ in range(4):
        append(log, *[b"x" * 90_000] * 10)
    read = at_once(log.read(0))
    assert read.next_offset == 20
    assert READ_BYTES <= read.size_in_bytes < 2 * READ_BYTES
    assert len(values_of(log)) == 40


def test_records_are_read_from_the_middle_of_a_node_on() -> None:
    log, _ = opened(FakeZooKeeper())
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    assert values_of(log, 1) == [b"b", b"c", b"d"]
    assert values_of(log, 3) == [b"d"]
    assert at_once(log.read(4)).next_offset == 4


def test_an_offset_at_which_the_log_never_ended_is_a_conflict() -> None:
    log, keeper = opened(FakeZooKeeper())
    append(log, b"a", b"b", b"c")
    for offset in (1, 2, 4):
        with pytest.raises(AppendConflict):
            at_once(log.append([b"x"], expected_end_offset=offset))
    assert everything(keeper.server) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("content", [b"", b"\x01", b"\x02" + bytes(100), b"\x01" + bytes(16) + b"\xff" * 80])
def test_a_node_with_something_else_in_it_is_corrupt(content: bytes) -> None:
    server = FakeZooKeeper()
    log, _ = opened(server)
    append(log, b"a")
    server.nodes[node_of(0)] = attrs.evolve(server.nodes[node_of(0)], data=content)
    with pytest.raises(CorruptLogError, match=r"^/kwire/log/0{20} in ZooKeeper"):
        at_once(log.read(0))


def test_a_node_with_the_records_of_another_one_is_corrupt() -> None:
    server = FakeZooKeeper()
    log, _ = opened(server)
    append(log, b"a")
    append(log, b"b")
    server.nodes[node_of(1)] = server.nodes[node_of(0)]
    with pytest.raises(CorruptLogError, match="has the records of another node"):
        at_once(log.read(1))


@pytest.mark.parametrize("data", [b"", b"[]", b'{"version":2,"start_offset":0}', b'{"version":1,"start_offset":-1}'])
def test_a_log_without_its_start_offset_is_corrupt(data: bytes) -> None:
    server = FakeZooKeeper()
    log, _ = opened(server)
    server.nodes[LOG] = attrs.evolve(server.nodes[LOG], data=data)
    with pytest.raises(CorruptLogError, match="does not say where the log begins"):
        append(log, b"a")


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"[]",
        b"{}",
        b'{"version":1,"token":"a","chunks":99999,"bytes":1}',
        b'{"version":1,"token":"../x","chunks":1,"bytes":1}',
    ],
)
def test_a_snapshot_whose_announcement_cannot_be_read_is_passed_over(data: bytes) -> None:
    server = FakeZooKeeper()
    log, _ = opened(server)
    append(log, b"a")
    server.commit((Create(snapshot_nodes.snapshot_node(1)), SetData(snapshot_nodes.snapshot_node(1), data, 0)), 1)
    assert at_once(log.read_snapshot()) is None
    assert everything(server) == [b"a"]


def test_a_log_whose_nodes_somebody_removed_is_one_clear_line() -> None:
    server = FakeZooKeeper()
    log, _ = opened(server)
    del server.nodes[LOG]
    with pytest.raises(ZooKeeperError, match="a node that the metadata log needs in ZooKeeper is gone: /kwire/log"):
        append(log, b"a")


def test_followers_of_the_log_are_notified_of_each_append_and_of_each_snapshot() -> None:
    server = FakeZooKeeper()
    log, _ = opened(server)
    other, keeper = opened(server)
    at_once(other.refresh())
    for number in range(3):
        append(log, b"a")
        assert keeper.news == number + 1
        at_once(other.refresh())
        assert other.end_offset == number + 1

    # Records that came and went between two looks.
    def append_and_replace() -> None:
        append(log, b"c")
        snapshot(log)

    keeper.before = once(f"exists {node_of(4)}", append_and_replace)
    append(log, b"b")
    at_once(other.refresh())
    assert other.end_offset == 5
    assert keeper.news >= 4


# Many writers


class Writers(RuleBasedStateMachine):
    """Three nodes that append, read and write snapshots, over connections that are lost at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.server = FakeZooKeeper()
        self.logs = [opened(self.server) for _ in range(3)]
        self.appended: list[bytes] = []
        self.unknown: set[bytes] = set()
        self.values = 0

    which = st.integers(0, 2)
    losses = st.lists(st.sampled_from([None, None, Loss.BEFORE, Loss.AFTER]), max_size=12)

    @rule(which=which, losses=losses, count=st.integers(1, 3))
    def append(self, which: int, losses: list[Loss | None], count: int) -> None:
        log, keeper = self.logs[which]
        values = [b"%d" % (self.values + number) for number in range(count)]
        self.values += count
        ended_at = len(self.truth())
        keeper.loses = losing("", *losses)
        keeper.most_attempts = 4
        possible = [values]
        try:
            at_once(log.append(values, expected_end_offset=log.end_offset))
        except AppendConflict:
            possible = [[]]
        except TimedOutError as error:
            possible = [[], values] if "it is unknown" in str(error) else [[]]
        finally:
            keeper.loses = lambda _: None
            keeper.most_attempts = 10
        assert self.truth()[ended_at:] in possible

    @rule(which=which)
    def look(self, which: int) -> None:
        log, _ = self.logs[which]
        at_once(log.refresh())
        assert log.end_offset == len(self.truth())

    @rule(which=which, losses=losses)
    def snapshot(self, which: int, losses: list[Loss | None]) -> None:
        log, keeper = self.logs[which]
        values = self.truth()[: log.end_offset]
        keeper.loses = losing("", *losses)
        keeper.most_attempts = 4
        try:
            at_once(log.write_snapshot(values, end_offset=log.end_offset))
        except TimedOutError:
            pass
        finally:
            keeper.loses = lambda _: None
            keeper.most_attempts = 10

    def truth(self) -> list[bytes]:
        return everything(self.server)

    @invariant()
    def what_was_in_the_log_stays_there(self) -> None:
        found = self.truth()
        assert found[: len(self.appended)] == self.appended
        assert len(found) == len(set(found))
        self.appended = found


TestWriters = Writers.TestCase
TestWriters.settings = settings(max_examples=40, stateful_step_count=30)


def test_the_fake_refuses_as_zookeeper_does() -> None:
    server = FakeZooKeeper()
    keeper = FakeKeeper(server)
    with pytest.raises(Exception, match="/a/b"):
        keeper.commit(Create("/a/b"))
    keeper.commit(Create("/a"), Create("/a/b", b"1"))
    before: dict[str, Found] = dict(server.nodes)
    with pytest.raises(Exception, match="/a/b"):
        keeper.commit(SetData("/a", b"2", 0), SetData("/a/b", b"2", 1))
    assert server.nodes == before
