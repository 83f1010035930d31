"""Our own source rules, which no off-the-shelf checker has; `devtools/tests/test_source_rules.py` applies them.

The main rule: time, randomness and I/O are arguments (see ARCHITECTURE.md for the reason). So the shipped packages may
use the clock, randomness, disk, network, threads or the process's environment only in the few modules of `ALLOWED`,
each with its reason. Importing a module that offers these counts as use, and so does the built-in `open`; imports for
annotations only do not. import-linter checks who may import trio.

The others: no catch-all `except` outside the connection boundary, no import from a room of tests, and no text that
ties the repository to one machine or one package registry.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from devtools.places import REPOSITORY

SHIPPED = ("kwire", "protocol/kwire_protocol", "storage/kwire_storage")
TEST_ROOMS = {"tests", "compat_tests", "spark_tests"}
GENERATED = ("protocol/kwire_protocol/messages/", "protocol/kwire_protocol/internal/")

# The kinds of access that a module gives. A dotted name is one thing in a module whose other things are harmless.
ACCESS = {
    "asyncio": "network",
    "concurrent.futures": "threads",
    "ctypes": "system",
    "datetime.date.today": "clock",
    "datetime.datetime.now": "clock",
    "datetime.datetime.today": "clock",
    "datetime.datetime.utcnow": "clock",
    "fcntl": "disk",
    "glob": "disk",
    "http": "network",
    "io.open": "disk",
    "mmap": "disk",
    "multiprocessing": "threads",
    "os": "system",
    "pathlib": "disk",
    "platform": "system",
    "queue": "threads",
    "random": "chance",
    "resource": "system",
    "secrets": "chance",
    "select": "network",
    "selectors": "network",
    "shutil": "disk",
    "signal": "system",
    "socket": "network",
    "socketserver": "network",
    "ssl": "network",
    "subprocess": "system",
    "tempfile": "disk",
    "threading": "threads",
    "trio.to_thread": "threads",
    "time": "clock",
    "urllib.request": "network",
    "uuid.uuid1": "chance",
    "uuid.uuid4": "chance",
}
# Importing these is no access yet, only some uses are; other uses are as pure as any function.
BY_USE = {"os"}
HARMLESS = {"os.PathLike", "os.fspath", "os.strerror"}


@attrs.frozen
class Allowance:
    """A module, or a folder of them, that may touch these things, and why."""

    path: str
    kinds: frozenset[str]
    reason: str


def _may(path: str, kinds: str, reason: str) -> Allowance:
    return Allowance(path, frozenset(kinds.split()), reason)


ALLOWED = (
    _may("storage/kwire_storage/disk/files.py", "disk system", "the disk's one door"),
    _may("storage/kwire_storage/directory/offset_checkpoints.py", "threads", "one thread at a time writes checkpoints"),
    _may("storage/kwire_storage/disk/open_files.py", "threads", "a lock: logs are recovered in several threads"),
    _may("protocol/kwire_protocol/frames.py", "disk", "maps memory, and no file, for large buffers"),
    _may("kwire/runtime/clock.py", "clock chance", "the clock and the dice, handed to everybody else"),
    _may("kwire/runtime/address_lookup.py", "network", "looks up the hosts of other brokers"),
    _may("kwire/runtime/guest_clock.py", "clock threads", "trio's clock; whether a thread can be started"),
    _may("kwire/network/server.py", "network", "binds and accepts"),
    _may("kwire/metrics/endpoint.py", "network", "accepts, and answers in a worker thread"),
    _may("kwire/runtime/poll.py", "network", "polls which sockets are ready"),
    _may("kwire/runtime/processor.py", "network", "is given sockets"),
    _may("kwire/runtime/transport.py", "network system", "receives, sends and sendfiles on its socket"),
    _may("kwire/network/outbox.py", "network", "sizes a socket's send buffer; says that more follows"),
    _may("kwire/replication/connection.py", "network", "fetches from a leader over its socket"),
    _may("kwire/security/tls/keystores.py", "disk system", "reads the keystores that are configured"),
    _may("kwire/security/tls/contexts.py", "network", "makes contexts of Python's ssl"),
    _may("kwire/security/tls/failures.py", "network", "names the errors of Python's ssl"),
    _may("kwire/network/tls_listener.py", "network", "is given sockets"),
    _may("kwire/runtime/tls_transport.py", "network", "receives and sends on its socket, encrypted"),
    _may("kwire/peers/connecting.py", "network", "connects to other brokers"),
    _may("kwire/testing/cutting_off.py", "network", "breaks connections between brokers"),
    _may("kwire/cluster/local/file_systems.py", "disk", "reads the system's list of mounts"),
    _may("kwire/cluster/local/news.py", "disk network system", "a datagram socket for each node, by its path"),
    _may("kwire/cluster/zookeeper/session.py", "network threads", "connects with TLS; kazoo calls in its threads"),
    _may("kwire/runtime/descriptors.py", "system", "reads the limit on open files, and raises it"),
    _may("kwire/node/supervisor.py", "system", "starts a process for each node, and stops them on a signal"),
    _may("kwire/node/running.py", "system", "ends on a signal"),
    _may("storage/kwire_storage/disk/lease.py", "threads", "a lock: flushes and cleanings run beside the log's owner"),
    _may("storage/kwire_storage/disk/faulty_disk.py", "threads", "a lock: flushes and cleanings run in worker threads"),
    _may("storage/kwire_storage/disk/ownership.py", "threads", "notices that two threads use one object"),
    _may("kwire/runtime/workers.py", "threads", "starts every worker thread"),
    _may("kwire/logs/cleaner.py", "clock", "measures how long a cleaning took"),
    _may(
        "kwire/logs/segment_writing.py",
        "clock network system",
        "starts a process; a thread that pauses",
    ),
    _may("kwire/logs/cleaner_process.py", "clock network system", "its socket, its working directory"),
    _may(
        "kwire/security/oauth/fetching.py",
        "clock disk network system",
        "fetches keys from a file or a server, in a worker thread, with an end to it",
    ),
    _may("kwire/client/transport.py", "network", "connects to brokers, for the client"),
    _may("kwire/client/waiting.py", "clock", "the client's deadlines; waits before the next attempt"),
    _may("kwire/security/oauth/token_file.py", "disk", "reads the token that another program keeps fresh"),
    _may("kwire/cli/", "disk", "reads the configuration file that the user names"),
    _may("kwire/pipeline/clock.py", "clock", "stamps records; computes what an hour ago is, and how old an index is"),
    _may("kwire/pipeline/files.py", "disk", "reads the options and schemas that the user names"),
    _may("kwire/pipeline/job.py", "clock system threads", "waits for queries; ends on a signal"),
    _may("kwire/pipeline/replay/run.py", "threads", "Spark works in one thread, and another prints how far it is"),
    _may("kwire/pipeline/report.py", "clock threads", "stamps its lines; one at a time"),
    _may("kwire/pipeline/session.py", "disk system", "looks for a Java, and starts Spark in it"),
    _may("kwire/pipeline/tables/preparing.py", "disk", "names the file of a schema"),
    _may("kwire/pipeline/tables/maintain.py", "clock", "what is old, and how long it took"),
    _may("kwire/pipeline/stream.py", "disk threads", "a query's empty checkpoint; Spark calls in its own thread"),
    _may("kwire/pipeline/mirror/handover.py", "threads", "what two threads hand to each other"),
    _may("kwire/pipeline/mirror/run.py", "clock", "how long a batch took"),
    _may("kwire/pipeline/mirror/upkeep.py", "clock threads", "when work is due; a thread beside the batches"),
    _may("kwire/pipeline/tables/run.py", "clock", "how long a batch took"),
    _may("kwire/pipeline/spark_source/light_tasks.py", "disk", "whether Spark's archive is another than before"),
    _may("kwire/pipeline/topics.py", "threads", "a lock: the tables of a job take turns"),
    _may(
        "kwire/pipeline/warehouse.py",
        "disk system threads",
        "where a folder's tables are, and whether it can be written; a thread waits for a catalog in vain",
    ),
    _may("kwire/testing/", "disk threads", "a broker in a thread on a temporary folder"),
)
CATCH_ALL_ALLOWED = {
    "kwire/metrics/endpoint.py": "a bug in reading a metric ends that request, never the broker",
    "kwire/network/connection.py": "a bug in a handler closes that connection, never the broker",
    "kwire/pipeline/replay/run.py": "what ends the work is raised by the job, in the thread that started it",
    "kwire/pipeline/stream.py": "what ends a batch is raised by the job, in the thread that started it",
    "kwire/pipeline/warehouse.py": "a catalog raises whatever its own library does",
    "kwire/testing/broker.py": "what ends the broker's thread is raised in the thread that started it",
    "kwire/runtime/workers.py": "what ends a worker's work is raised in the task that waits for it",
}


@attrs.frozen
class Violation:
    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def touches(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """(line, kind, name) for each access to the outside that a module has."""
    finder = _Accesses()
    finder.visit(tree)
    yield from finder.found


class _Accesses(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[tuple[int, str, str]] = []
        self._names: dict[str, str] = {}

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for child in node.orelse:
                self.visit(child)
        else:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self._names[alias.asname or top] = alias.name if alias.asname else top
            if top not in BY_USE:
                self._add(node.lineno, _known(alias.name))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and node.module is not None:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                self._names[alias.asname or alias.name] = name
                self._add(node.lineno, _known(name))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        first, _, rest = ast.unparse(node).partition(".")
        known = _known(f"{self._names[first]}.{rest}") if first in self._names else None
        if known is not None and ("." in known or known in BY_USE):  # else its import was counted
            self._add(node.lineno, known)
        elif first not in self._names:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            self.found.append((node.lineno, "disk", "open()"))

    def _add(self, line: int, known: str | None) -> None:
        if known is not None:
            self.found.append((line, ACCESS[known], known))


def _known(name: str) -> str | None:
    """The entry of ACCESS that a dotted name falls under."""
    if name in HARMLESS:
        return None
    parts = name.split(".")
    return next((known for end in range(1, len(parts) + 1) if (known := ".".join(parts[:end])) in ACCESS), None)


def catch_alls(tree: ast.Module) -> Iterator[int]:
    """Lines of `except` clauses that catch everything and do not raise it again."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and _takes_everything(node.type):
            last = node.body[-1]
            if not (isinstance(last, ast.Raise) and last.exc is None):
                yield node.lineno


def _takes_everything(kind: ast.expr | None) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(
        each is None or (isinstance(each, ast.Name) and each.id in ("Exception", "BaseException")) for each in kinds
    )


def imports_of_tests(tree: ast.Module, path: str) -> Iterator[tuple[int, str]]:
    """(line, module) for each import from a package of tests: what several tests need is in `testkit`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            package = _package(path, node.level)
            module = ".".join([*package, *([node.module] if node.module else [])])
            modules = [f"{module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            if not TEST_ROOMS.isdisjoint(module.split(".")):
                yield node.lineno, module


def _package(path: str, level: int) -> Sequence[str]:
    """Returns the package that a relative import in the module at `path` begins with; nothing for an absolute one."""
    return Path(path).parts[:-level] if level else ()


# Written so that this file does not break its own rule.
_TIED = {
    "a path of one machine": re.compile(
        r"(?<![\w.}~*/-])/(?:home|root|Users|work|tmp|mnt|srv|opt)/(?!kafka-logs\b|kraft-)\w"
    ),
    "a package registry's address": re.compile(
        r"(?:pypi|pythonhosted|npmjs|golang|maven|sonatype)\.(?:org|com|io|apache\.org)\b|\bcrates\.io\b", re.IGNORECASE
    ),
}


def ties(text: str) -> Iterator[tuple[int, str]]:
    """(line, what) for text that names one machine's folders or a package registry."""
    for number, line in enumerate(text.splitlines(), start=1):
        for what, pattern in _TIED.items():
            if found := pattern.search(line):
                yield number, f"{what}: {found[0]}"


def shipped_modules() -> list[str]:
    """Paths of the modules that users install, relative to the repository; tests are not among them."""
    paths = (path.relative_to(REPOSITORY) for folder in SHIPPED for path in (REPOSITORY / folder).rglob("*.py"))
    return sorted(path.as_posix() for path in paths if "tests" not in path.parts)


def tracked_files() -> list[str]:
    """Every file that git has or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(name for name in set(listed) if (REPOSITORY / name).is_file())


def outside_violations() -> list[Violation]:
    found = []
    for path in shipped_modules():
        allowed = {kind for entry in ALLOWED if path.startswith(entry.path) for kind in entry.kinds}
        for line, kind, name in touches(_parse(path)):
            if kind not in allowed:
                found.append(
                    Violation(path, line, f"{name}: {kind} comes in as an argument (devtools/source_rules.py)")
                )
    return found


def unused_allowances() -> list[str]:
    used = {(path, kind) for path in shipped_modules() for _, kind, _ in touches(_parse(path))}
    return [
        f"{entry.path}: {kind}"
        for entry in ALLOWED
        for kind in sorted(entry.kinds)
        if not any(path.startswith(entry.path) and kind == kind_used for path, kind_used in used)
    ]


def catch_all_violations() -> list[Violation]:
    return [
        Violation(path, line, "catches everything; only the connection boundary may")
        for path in shipped_modules()
        if path not in CATCH_ALL_ALLOWED
        for line in catch_alls(_parse(path))
    ]


def violations_of_test_imports() -> list[Violation]:
    return [
        Violation(path, line, f"imports {module}: move what it needs into testkit")
        for path in tracked_files()
        if path.endswith(".py")
        for line, module in imports_of_tests(_parse(path), path)
    ]


def tie_violations() -> list[Violation]:
    found = []
    for path in tracked_files():
        try:
            text = (REPOSITORY / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [Violation(path, line, what) for line, what in ties(text)]
    return found


def _parse(path: str) -> ast.Module:
    return ast.parse(Path(REPOSITORY, path).read_text(encoding="utf-8"), filename=path)
