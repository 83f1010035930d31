"""Worker threads besides the event loop: every worker thread of a broker is started here and named after its duty.

`DUTIES` has the work of each kind of worker, and the methods that it may call. All other objects belong to the event
loop. A worker gets values, or objects that the loop does not use until the worker has returned, or one of the few
thread-safe objects. Four rules separate the threads:

* One flush of a log at a time. All flushes go through `Flusher.flush`, and `Log.begin_flush` raises OwnershipError
  while another flush is running.
* A lease on the folder. A log and its workers access the disk through `kwire_storage/disk/lease.py`. When the topic is
  deleted or moved, the lease ends first: a running flush or cleaning finds no file, even if a topic of that name has
  been created again. The cleaner's process has no lease; the folder is lent to it, and is removed only after that
  cleaning.
* Values. The input of a worker is copied from the log when its work begins, and the loop applies its result.
* A guard in the tests (`testkit/basics/ownership_guard.py`): a worker's call that its duty does not list raises
  OwnershipError.

The threads are kwire's own, not trio's: four start before they are needed, and if no more can be started, work waits
for one that is free. Trio's own cache has one thread, in which trio waits for events (`guest_clock.py`).
"""

from __future__ import annotations

import errno
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Final, TypeVar, TypeVarTuple, cast

import attrs
import trio
from outcome import Error, Outcome, Value

log = logging.getLogger(__name__)

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
    ADDRESSES = "addresses"
    METRICS = "metrics"
    KEYS = "keys"
    STOP = "stop"


@attrs.frozen
class Duty:
    """A worker's duty. `calls` are the methods of the loop's objects that it may call: `Class.method` or `Class.*`."""

    does: str
    is_given: str
    files: str
    at_once: str
    calls: tuple[str, ...] = ()


DUTIES = {
    Worker.FLUSH: Duty(
        does="syncs the records appended to a log",
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
        is_given="the folder, whose flag for a pending sync it clears",
        files="syncs the log dir",
        at_once="one",
        calls=("LogDir.sync_given_up",),
    ),
    Worker.REMOVAL: Duty(
        does="removes deleted files and folders",
        is_given="a `Deleted`: paths that no one else uses",
        files="removes `*.deleted` and `*-delete` folders",
        at_once="one",
        calls=("LogDir.remove",),
    ),
    Worker.CLEANER: Duty(
        does="renames the files of the cleaner process, and waits for it; for a disk in memory it writes them itself",
        is_given="a `Compaction`, which the loop does not use meanwhile; to write, a `Plan`",
        files="renames `*.cleaned` to `*.swap`; syncs the partition's folder",
        at_once="one",
    ),
    Worker.MOVE: Duty(
        does="copies a log to another log dir",
        is_given="the `LogMove`, whose copy no other thread uses meanwhile (`SoleUse`), and a slice of the source",
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
        is_given="the `SharedMetadataLog`, whose `Log` is used only under the lock of the cluster's folder",
        files="reads and writes all of the cluster's `__cluster_metadata-0`",
        at_once="one, since each holds the lock",
        calls=("Log.*", "LogSegments.*", "ProducerStateManager.*", "Durability.*", "Reserve.*"),
    ),
    Worker.ZOOKEEPER: Duty(
        does="reads from ZooKeeper, and writes the metadata log there",
        is_given="a `Keeper`, for any thread, and values",
        files="none",
        at_once="one for the metadata service, one for changes in ZooKeeper",
    ),
    Worker.ADDRESSES: Duty(
        does="looks up the addresses of another broker's host",
        is_given="the host's name",
        files="none",
        at_once="one for a connection to be made",
    ),
    Worker.METRICS: Duty(
        does="answers one request for metrics",
        is_given="its own socket, and the values",
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

CORE_THREADS: Final = 4
"""The number of threads that are started early and never end, so that work continues if no thread can be started."""

IDLE_S: Final = 10.0
"""The time in seconds without work after which the other threads end."""

_current = threading.local()


class Threads:
    """Threads that wait for work. If no more can be started, work waits until one of them is free.

    They are not trio's threads: those serve its event loop as well, which ends if there is none.
    """

    def __init__(self, start: Callable[[Callable[[], None]], None]) -> None:
        self._start = start
        """Starts a thread; raises RuntimeError."""
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._count = 0
        self._free = 0
        """The number of waiting threads, without those for which work is in the queue."""
        self._overdue = 0
        """The number of entries in the queue for which no thread waits."""

    def keep(self, count: int) -> None:
        """Starts threads until there are `count`. Raises OSError if not even one can be started."""
        with self._lock:
            while self._count < count and self._add():
                self._free += 1
            if not self._count:
                raise _no_thread()

    def do(self, work: Callable[[], object]) -> None:
        """Runs `work`, which raises nothing, in one of the threads. Raises OSError if there is no thread at all."""
        with self._lock:
            if self._free:
                self._free -= 1
            elif not self._add():
                if not self._count:
                    raise _no_thread()
                if not self._overdue:
                    log.warning("no more than %d worker threads can be started, and work waits for them", self._count)
                self._overdue += 1
            self._work.put(work)

    def _add(self) -> bool:
        try:
            self._start(self._serve)
        except (RuntimeError, MemoryError):  # Python raises RuntimeError for EAGAIN
            return False
        self._count += 1
        return True

    def _serve(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._free and self._count > CORE_THREADS:
                        self._free -= 1
                        self._count -= 1
                        return
                continue
            work()
            del work  # and the objects that it refers to
            with self._lock:
                if self._overdue:
                    self._overdue -= 1
                else:
                    self._free += 1


def _no_thread() -> OSError:
    return OSError(errno.EAGAIN, "no worker thread can be started; raise the limit on processes or threads (ulimit -u)")


def _start_thread(serve: Callable[[], None]) -> None:
    threading.Thread(target=serve, name="kwire worker", daemon=True).start()


_threads = Threads(_start_thread)


def start() -> None:
    """Starts the threads that never end. Raises OSError."""
    _threads.keep(CORE_THREADS)


def current() -> Worker | None:
    """The worker kind of the calling thread; None in the event loop's thread and in any other."""
    return getattr(_current, "worker", None)


@contextmanager
def working_as(worker: Worker) -> Iterator[None]:
    """Runs the block as that kind of worker, in a thread of a pool."""
    _current.worker = worker
    try:
        yield
    finally:
        _current.worker = None


def start_waiting(name: str, wait: Callable[[], object]) -> None:
    """Runs `wait` in a daemon thread: the process may end without it, since nothing can wake it from outside.

    Raises OSError if no thread can be started.
    """
    try:
        threading.Thread(target=wait, name=name, daemon=True).start()
    except (RuntimeError, MemoryError) as error:
        raise _no_thread() from error


def side_by_side(
    worker: Worker, tasks: Sequence[Callable[[], object]], most: int, *, every_s: float | None = None
) -> Iterator[None]:
    """Runs all tasks without an event loop, at most `most` at once. Yields after each `every_s` until they are done.

    After an error no further task starts; the error is raised when the running tasks are done.
    """
    results: queue.SimpleQueue[Outcome[object]] = queue.SimpleQueue()

    def begin(task: Callable[[], object]) -> None:
        def as_worker() -> None:
            with working_as(worker):
                results.put(_outcome(task))

        _threads.do(as_worker)

    left = deque(tasks)
    running = 0
    failed: Error | None = None
    while running or (left and failed is None):
        while left and running < most and failed is None:
            begin(left.popleft())
            running += 1
        try:
            result = results.get(timeout=every_s)
        except queue.Empty:
            yield
            continue
        running -= 1
        if isinstance(result, Error):
            failed = failed or result
    if failed is not None:
        raise failed.error


async def run_to_its_end(worker: Worker, work: Callable[[], T]) -> Outcome[T]:
    """Does the same as `run`, even if the task is already cancelled, so that the result always reaches its waiter."""
    result: Outcome[T]
    with trio.CancelScope(shield=True):
        try:
            result = Value(await run(worker, work))
        except BaseException as error:  # the waiter raises it
            result = Error(error)
    return result


async def run(
    worker: Worker,
    work: Callable[[*Ts], T],
    *args: *Ts,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> T:
    """Runs `work(*args)` in a worker thread. A cancellation waits until it ends, unless `abandon_on_cancel`."""
    results: list[Outcome[T]] = []
    done, token, borrower = trio.Event(), trio.lowlevel.current_trio_token(), object()

    def as_worker() -> None:
        thread = threading.current_thread()
        thread.name = f"kwire {worker.value}"
        with working_as(worker):
            results.append(_outcome(work, *args))
        thread.name = "kwire worker"
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(done.set)

    if limiter is None:
        limiter = trio.to_thread.current_default_thread_limiter()
    await limiter.acquire_on_behalf_of(borrower)
    try:
        _threads.do(as_worker)
        with trio.CancelScope(shield=not abandon_on_cancel):
            await done.wait()
    finally:
        limiter.release_on_behalf_of(borrower)
    result = results.pop()
    if isinstance(result, Error):
        # Raised here and not by `unwrap`, whose frame would be part of a reference cycle. The cycle would keep the
        # work's files open until the garbage collector runs, and in an idle broker it never does.
        error = result.error
        del result
        try:
            raise error
        finally:
            del error
    assert isinstance(result, Value)
    return cast("T", result.value)


def _outcome(work: Callable[[*Ts], T], *args: *Ts) -> Outcome[T]:
    """Returns the result of `work`. MemoryError becomes an OSError: like a lack of descriptors, it may pass."""
    try:
        return Value(work(*args))
    except MemoryError:
        return Error(OSError(errno.ENOMEM, "no memory is left"))
    except BaseException as error:
        return Error(error)
