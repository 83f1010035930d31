"""Worker threads beside the event loop: every worker thread of a broker is started here and named after its duty.

`DUTIES` says what each kind of worker does and what it may use; a test compares it with the table in ARCHITECTURE.md.
All other objects belong to the event loop. A worker gets values, or objects that the loop does not use until the worker
has returned, or one of the few thread-safe objects. In tests, a worker's call that its duty does not list raises
OwnershipError (`kwire/tests/ownership_guard.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TypeVar, TypeVarTuple, cast

import attrs
import trio
from outcome import Error, Outcome, Value

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Worker(Enum):
    """The kinds of workers; the value is the thread's name."""

    FLUSH = "flush"
    CHECKPOINTS = "checkpoints"
    NAMES = "names"
    REMOVAL = "removal"
    CLEANER = "cleaner"
    MOVE = "move"
    RECOVERY = "recovery"
    SNAPSHOT = "snapshot"
    METADATA = "metadata"
    ZOOKEEPER = "zookeeper"
    METRICS = "metrics"
    KEYS = "keys"
    STOP = "stop"


@attrs.frozen
class Duty:
    """`calls` are the methods of the loop's objects that the worker may call, as `Class.method` or `Class.*`."""

    does: str
    is_given: str
    files: str
    at_once: str
    calls: tuple[str, ...] = ()


DUTIES = {
    Worker.FLUSH: Duty(
        does="syncs what was appended to a log",
        is_given="a `Flush`: open files, paths and contents, collected when it began",
        files="syncs records, indexes and snapshots; replaces `leader-epoch-checkpoint`",
        at_once="one for a log (`Log.begin_flush` refuses a second), up to 32 in all",
        calls=("Reserve.spend", "Reserve.note"),
    ),
    Worker.CHECKPOINTS: Duty(
        does="writes offset checkpoints",
        is_given="the offsets at that moment; partitions deleted since then are left out",
        files="replaces `*-offset-checkpoint` of a log dir",
        at_once="one for a log dir (a lock in `OffsetCheckpoints`)",
        calls=("LogDir.write", "OffsetCheckpoints.write", "Reserve.spend", "Reserve.note"),
    ),
    Worker.NAMES: Duty(
        does="syncs the names in a log dir, after partitions were deleted",
        is_given="the folder, whose mark that there is something to sync it takes away",
        files="syncs the log dir",
        at_once="one",
        calls=("LogDir.sync_given_up",),
    ),
    Worker.REMOVAL: Duty(
        does="removes what was deleted",
        is_given="a `Deleted`: paths that no one else uses",
        files="removes `*.deleted` and `*-delete` folders",
        at_once="one",
        calls=("LogDir.remove",),
    ),
    Worker.CLEANER: Duty(
        does="renames what the cleaner process wrote, and waits for it; with a disk in memory it writes as that does",
        is_given="a `Compaction`, of which the loop touches nothing meanwhile; to write, a `Plan`",
        files="renames `*.cleaned` to `*.swap`; syncs the partition's folder",
        at_once="one",
    ),
    Worker.MOVE: Duty(
        does="copies a log to another log dir",
        is_given="the `LogMove`, whose copy no other thread touches meanwhile (a `Turn`), and a slice of the source",
        files="reads `*.log` of the source; writes all of a `*-future` folder",
        at_once="one",
        calls=("LogMove.append", "LogMove.prepare", "Log.*", "Reserve.*"),
    ),
    Worker.RECOVERY: Duty(
        does="opens logs after an unclean stop, before the event loop begins",
        is_given="a `LogOpening`; its log has no other user yet",
        files="reads and repairs all of a partition's folder",
        at_once="one for a log, `num.recovery.threads.per.data.dir` in all",
        calls=(
            "LogDir.open_log",
            "LogDir.checkpointed",
            "Log.*",
            "OffsetCheckpoints.lower_recovery_point",
            "OffsetCheckpoints.write",
            "Reserve.*",
        ),
    ),
    Worker.SNAPSHOT: Duty(
        does="writes a snapshot of the metadata",
        is_given="its bytes",
        files="writes a `*.checkpoint` of the metadata log",
        at_once="one",
    ),
    Worker.METADATA: Duty(
        does="reads and appends to a metadata log that several processes share",
        is_given="the `SharedMetadataLog`, whose `Log` is touched under the lock of the cluster's folder only",
        files="reads and writes all of the cluster's `__cluster_metadata-0`",
        at_once="one, since each holds the lock",
        calls=("Log.*", "LogSegments.*", "ProducerStateManager.*", "Durability.*", "Reserve.*"),
    ),
    Worker.ZOOKEEPER: Duty(
        does="asks ZooKeeper, and writes the metadata log there",
        is_given="a `Keeper`, for any thread, and values",
        files="none",
        at_once="one for what the metadata service asks, one for news",
    ),
    Worker.METRICS: Duty(
        does="answers one request for metrics",
        is_given="a socket of its own, and the values",
        files="none",
        at_once="two",
    ),
    Worker.KEYS: Duty(
        does="fetches the keys that OAUTHBEARER tokens are signed with, from a file or over HTTP",
        is_given="a `KeyFetch`, of which the loop only calls `cut_off` meanwhile",
        files="reads the file of `sasl.oauthbearer.jwks.endpoint.url`",
        at_once="one for a listener",
    ),
    Worker.STOP: Duty(
        does="syncs logs at a clean stop, after the event loop has ended",
        is_given="a `Flush`, as above",
        files="as a flush",
        at_once="one for a log, up to 32 in all",
        calls=("Reserve.spend", "Reserve.note"),
    ),
}

_current = threading.local()


def current() -> Worker | None:
    """The worker kind of the calling thread; None in the event loop's thread and in any other."""
    return getattr(_current, "worker", None)


@contextmanager
def working_as(worker: Worker) -> Iterator[None]:
    """For a thread of a pool: runs the block as that kind of worker."""
    _current.worker = worker
    try:
        yield
    finally:
        _current.worker = None


def start_waiting(name: str, wait: Callable[[], object]) -> None:
    """Runs `wait` in a thread that the end of the process does not wait for: nothing can wake it from outside."""
    threading.Thread(target=wait, name=name, daemon=True).start()


async def run_to_its_end(worker: Worker, work: Callable[[], T]) -> Outcome[T]:
    """Like `run`, even if the task is already cancelled, so that the result always reaches its waiter."""
    result: Outcome[T]
    with trio.CancelScope(shield=True):
        try:
            result = Value(await run(worker, work))
        except BaseException as error:  # whoever waits raises it
            result = Error(error)
    return result


async def run(worker: Worker, work: Callable[[*Ts], T], *args: *Ts, limiter: trio.CapacityLimiter | None = None) -> T:
    """Runs `work(*args)` in a worker thread. A cancellation waits until it ends."""
    failures: list[BaseException] = []

    def as_worker() -> T | None:
        with working_as(worker):
            try:
                return work(*args)
            except BaseException as error:
                failures.append(error)
                return None

    result = await trio.to_thread.run_sync(as_worker, thread_name=f"kwire {worker.value}", limiter=limiter)
    if failures:
        # If the thread raised it, trio would pass it on in a frame that is part of a reference cycle. The cycle would
        # keep the work's files open until the garbage collector runs, and in an idle broker it never does.
        raise failures.pop()
    return cast("T", result)
