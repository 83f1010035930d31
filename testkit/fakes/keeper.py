"""A small ZooKeeper in memory, and a session with it whose connection can be lost before or after any operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto

import attrs

from kwire.cluster.zookeeper.keeper import (
    BadVersionError,
    ConnectionLostError,
    Create,
    Delete,
    Found,
    NodeExistsError,
    NoNodeError,
    Operation,
    RefusedError,
    SetData,
    Stat,
    TimedOutError,
)


class Loss(Enum):
    """The outcome of an operation when the connection is lost: the request arrives or not, the answer does not."""

    BEFORE = auto()
    AFTER = auto()


@attrs.define
class FakeZooKeeper:
    nodes: dict[str, Found] = attrs.field(factory=lambda: {"": Found(b"", Stat(0, 0, 0))})
    transactions: int = 0
    watchers: dict[str, list[Callable[[], None]]] = attrs.field(factory=dict)

    def commit(self, operations: tuple[Operation, ...], session_id: int) -> None:
        after = dict(self.nodes)
        self.transactions += 1
        changed = []
        for it in operations:
            found = after.get(it.path)
            if isinstance(it, Create):
                if found is not None:
                    raise NodeExistsError(it.path)
                if it.path.rpartition("/")[0] not in after:
                    raise NoNodeError(it.path)
                owner = session_id if it.is_ephemeral else 0
                after[it.path] = Found(it.data, Stat(0, owner, self.transactions))
                changed.append(it.path)
                continue
            if found is None:
                raise NoNodeError(it.path)
            if isinstance(it, Delete):
                if any(path.startswith(f"{it.path}/") for path in after):
                    raise RefusedError(it.path)
                del after[it.path]
                changed.append(it.path)
                continue
            if it.version != found.stat.version:
                raise BadVersionError(it.path)
            if isinstance(it, SetData):
                after[it.path] = Found(it.data, attrs.evolve(found.stat, version=it.version + 1))
                changed.append(it.path)
        self.nodes = after
        for path in changed:
            for call in self.watchers.pop(path, []):
                call()

    def names(self, path: str) -> list[str]:
        below = [it.removeprefix(f"{path}/") for it in self.nodes if it.startswith(f"{path}/")]
        return [it for it in below if "/" not in it]


@attrs.define(eq=False)
class FakeKeeper:
    """A client of ZooKeeper. `loses` is called before each operation, with a description of it, and so is `before`;
    `after` is called when it is done.
    """

    server: FakeZooKeeper
    session_id: int = 1
    loses: Callable[[str], Loss | None] = lambda _: None
    before: Callable[[str], None] = lambda _: None
    after: Callable[[str], None] = lambda _: None
    most_attempts: int = 10
    news: int = 0
    """The number of notifications of a change."""

    def attempts(self) -> Iterator[None]:
        for _ in range(self.most_attempts):
            yield
        raise TimedOutError("ZooKeeper has not answered for 1 ms: timed out")

    def get(self, path: str, *, watch: bool = False) -> Found:
        with_loss = self._begin(f"get {path}")
        found = self.server.nodes.get(path)
        self._end(with_loss)
        if found is None:
            raise NoNodeError(path)
        self._watch(path, watch)
        return found

    def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        self._end(self._begin(f"exists {path}"))
        self._watch(path, watch)
        found = self.server.nodes.get(path)
        return None if found is None else found.stat

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        self._end(self._begin(f"children {path}"))
        if path not in self.server.nodes:
            raise NoNodeError(path)
        return self.server.names(path)

    def commit(self, *operations: Operation) -> None:
        what = "commit " + ", ".join(f"{type(it).__name__} {it.path}" for it in operations)
        loss = self._begin(what)
        self.server.commit(operations, self.session_id)
        self.after(what)
        self._end(loss)

    def wait_for_end(self, path: str) -> bool:
        return path not in self.server.nodes

    def _begin(self, what: str) -> Loss | None:
        self.before(what)
        loss = self.loses(what)
        if loss is Loss.BEFORE:
            raise ConnectionLostError
        return loss

    def _end(self, loss: Loss | None) -> None:
        if loss is Loss.AFTER:
            raise ConnectionLostError

    def _watch(self, path: str, watch: bool) -> None:
        if watch:
            self.server.watchers.setdefault(path, []).append(self._on_watch)

    def _on_watch(self) -> None:
        self.news += 1


def losing(what: str, *losses: Loss | None) -> Callable[[str], Loss | None]:
    """Returns a function for `loses`: the first operations whose description has this text get these losses."""
    left = list(losses)

    def loses(described: str) -> Loss | None:
        return left.pop(0) if left and what in described else None

    return loses
