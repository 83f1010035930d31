"""Checks the duties of workers while tests run: a call that `kwire.runtime.workers.DUTIES` does not list raises.

The methods of the classes in `OWNED` belong to the event loop. `install` puts a check before each: a worker thread may
call what its duty lists, and what follows from that within the same call. Threads that are no workers (a test's own,
the one of `kwire.testing`) count as the loop.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kwire_storage import names
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.directory.log_dirs import LogDirs
from kwire_storage.directory.moving import LogMove
from kwire_storage.directory.offset_checkpoints import OffsetCheckpoints
from kwire_storage.disk.reserve import Reserve
from kwire_storage.errors import OwnershipError
from kwire_storage.log.durability import Durability
from kwire_storage.log.log import Log
from kwire_storage.log.log_segments import LogSegments
from kwire_storage.producers.state_manager import ProducerStateManager

from kwire.coordinators.runtime import CoordinatorRuntime
from kwire.logs.moves import LogMoves
from kwire.metadata.log import METADATA_TOPIC
from kwire.metadata.service import MetadataService
from kwire.node.broker import Broker
from kwire.replicas.flush_gate import FlushGate
from kwire.replicas.partition import Partition
from kwire.replicas.table import PartitionTable
from kwire.runtime import workers
from kwire.runtime.workers import DUTIES, Worker

OWNED: tuple[type, ...] = (
    Broker,
    CoordinatorRuntime,
    LogDir,
    LogDirs,
    Durability,
    FlushGate,
    Log,
    LogMove,
    LogMoves,
    LogSegments,
    MetadataService,
    OffsetCheckpoints,
    Partition,
    PartitionTable,
    ProducerStateManager,
    Reserve,
)

_within = threading.local()


def install() -> None:
    """Installs the checks for the whole process, from now on. One call is enough."""
    for owned in OWNED:
        for name, member in list(vars(owned).items()):
            if inspect.isfunction(member) and not name.startswith("_") and not hasattr(member, "__wrapped__"):
                setattr(owned, name, _checked(member, owned.__name__, name))


def _checked(method: Callable[..., Any], owner: str, name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(self: object, *args: Any, **kwargs: Any) -> Any:
        worker = workers.current()
        if worker is None or getattr(_within, "is_allowed", False):
            return method(self, *args, **kwargs)
        if not may_call(worker, owner, name) or not _is_handed_to(worker, self):
            raise OwnershipError(f"the {worker.value} worker called {owner}.{name}, which belongs to the event loop")
        with _allowed():
            return method(self, *args, **kwargs)

    return checked


def may_call(worker: Worker, owner: str, name: str) -> bool:
    return any(call in (f"{owner}.{name}", f"{owner}.*") for call in DUTIES[worker].calls)


def _is_handed_to(worker: Worker, called: object) -> bool:
    """A mover has the log of its copy, and who follows the cluster its metadata log; no other."""
    if not isinstance(called, Log):
        return True
    if worker is Worker.METADATA:
        return called.path == names.partition_folder(METADATA_TOPIC, 0)
    return worker is not Worker.MOVE or names.parse_future_folder(called.path) is not None


@contextmanager
def _allowed() -> Iterator[None]:
    _within.is_allowed = True
    try:
        yield
    finally:
        _within.is_allowed = False
