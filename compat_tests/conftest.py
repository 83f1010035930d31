"""Fixtures: the broker, and names that no other test uses.

What is started for all tests ends with the last of them here: a process then runs tests of other folders.
"""

from __future__ import annotations

import gc
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testkit.java import java_host
from testkit.raw import groups, nodes, topics
from testkit.servers import brokers

if TYPE_CHECKING:
    # Clients must be imported when the warnings about them are known.
    from testkit.security.secured import Secured
    from testkit.security.secured_clients import Client, Java

# Warnings are errors here; these are about the clients' own code, which is not ours to change.
_WARNINGS_OF_IMPORTING_CLIENTS = (
    "read_text is deprecated:DeprecationWarning:kafka.protocol.schemas.load_json",
    "open_text is deprecated:DeprecationWarning:importlib.resources._legacy",
)
# kafka-python 3.0 forgets some of the sockets with which it tried to reach a stopped broker, and aiokafka some of those
# with which it was not let in.
_WARNINGS_OF_FORGOTTEN_SOCKETS = (
    "ignore:unclosed <socket.socket:ResourceWarning",
    "ignore:unclosed <ssl.SSLSocket:ResourceWarning",
    "ignore:unclosed transport:ResourceWarning",
)

# A client finds the broker that leads and coordinates what it is about; a test with raw requests does not look for it.
_ONE_NODE = "asks_one_node"

# The tests that are left out where there are three brokers, and why.
_NOT_ON_A_CLUSTER = {
    "test_kills_under_load_lose_repeat_and_reorder_nothing": (
        "kills the only broker, and asks it by raw requests; for clusters there is testkit/kills/cluster_faults"
    ),
    "test_each_start_begins_a_leader_epoch_and_ends_those_before": (
        "restarts the only broker, and asks it by raw requests; in a cluster another one leads meanwhile"
    ),
    "test_a_consumer_with_the_earlier_epoch_continues_after_a_restart": (
        "restarts the only broker; in a cluster another one may lead all the time"
    ),
    "test_a_producer_whose_epochs_are_used_up_continues_with_a_new_id": (
        "sends 32,766 requests one after the other, and each waits for replicas: minutes, for what is not about nodes"
    ),
}
_left_out = pytest.StashKey[list[str]]()

_numbers = itertools.count(1)


def pytest_report_header() -> str:
    return f"compat tests against: {brokers.KIND} (KWIRE_COMPAT)"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{_ONE_NODE}: node 1 leads the test's topics, and coordinates its group and transactional id"
    )
    for warning in _WARNINGS_OF_IMPORTING_CLIENTS:
        config.addinivalue_line("filterwarnings", f"ignore:{warning}")
    if brokers.KIND not in brokers.KINDS:
        raise pytest.UsageError(f"KWIRE_COMPAT is {brokers.KIND!r}; it must be one of {', '.join(brokers.KINDS)}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if brokers.IS_CLUSTER:
        _leave_out(config, items)
    for item in items:
        if item.path.parent == Path(__file__).parent:  # only here: other tests must see these warnings
            item.add_marker(pytest.mark.filterwarnings(*_WARNINGS_OF_FORGOTTEN_SOCKETS))


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    gone = [item for item in items if item.name in _NOT_ON_A_CLUSTER]
    config.stash[_left_out] = [item.name for item in gone]
    config.hook.pytest_deselected(items=gone)
    items[:] = [item for item in items if item not in gone]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name in config.stash.get(_left_out, []):
        terminalreporter.line(f"LEFT OUT on a cluster: {name}: {_NOT_ON_A_CLUSTER[name]}")


@pytest.fixture(scope="module", autouse=True)
def forgotten_sockets_are_collected() -> Iterator[None]:
    """Collects sockets that clients left open, so that their warnings do not appear in a test elsewhere."""
    yield
    gc.collect()


@pytest.fixture(scope="package")
def broker() -> Iterator[brokers.Broker]:
    """The broker under test. Shared: a test uses topics and groups of its own, and leaves the broker as it found it."""
    with brokers.shared_broker() as running:
        yield running


@pytest.fixture(scope="package")
def restartable_broker() -> Iterator[brokers.RestartableBroker]:
    """A broker to restart and to kill. A test leaves it running."""
    with brokers.restartable_broker() as running:
        yield running


@pytest.fixture(scope="package")
def java() -> Iterator[java_host.JavaHost]:
    """A Java process for Kafka's own clients and tools."""
    with java_host.java_host() as host:
        yield host


@pytest.fixture(scope="package")
def secured() -> Iterator[Secured]:
    """The broker with secured listeners. Shared, as `broker` is."""
    from testkit.security.secured import secured_broker

    with secured_broker() as running:
        yield running


@pytest.fixture(scope="package")
def java_at_listeners(java: java_host.JavaHost, tmp_path_factory: pytest.TempPathFactory) -> Java:
    """Kafka's own clients, at secured listeners."""
    from testkit.security.secured_clients import Java

    return Java(java, tmp_path_factory.mktemp("java"))


@pytest.fixture
def open_topic(secured: Secured, unique: Callable[[str], str]) -> str:
    """A topic of one partition at that broker, without restrictions for any user."""
    from testkit.security.secured import OPEN

    return secured.create_topic(OPEN + unique("topic"))


@pytest.fixture
def client_name(request: pytest.FixtureRequest) -> str:
    """The name of `client`."""
    return str(request.node.callspec.params["client"])


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Client:
    """A client of secured_clients.CLIENTS, by its name."""
    from testkit.security.secured_clients import client

    return client(request.param, lambda: request.getfixturevalue("java_at_listeners"))


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes a name for a topic or a group that no other test has."""
    test = re.sub(r"[^a-z0-9_]", "", str(request.node.originalname))[:80]

    def name(what: str) -> str:
        return f"{test}-{what}-{next(_numbers)}"

    return name


@pytest.fixture
def new_topic(
    request: pytest.FixtureRequest, broker: brokers.Broker, unique: Callable[[str], str]
) -> Callable[..., str]:
    """Creates a topic on the shared broker: `new_topic(partitions=3, config={"cleanup.policy": "compact"})`."""
    replicas = brokers.NODES if _has_one_node(request) else None

    def create(*, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = unique("topic")
        topics.create(broker.bootstrap, name, partitions=partitions, config=config, replicas=replicas)
        return name

    return create


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    """A topic of one partition."""
    return new_topic()


@pytest.fixture
def new_group(request: pytest.FixtureRequest, unique: Callable[[str], str]) -> Callable[..., str]:
    """Makes names of unused groups: `new_group()`, or `new_group("classic")`."""

    def name(what: str = "group") -> str:
        return _coordinated(request, nodes.GROUP, lambda: unique(what))

    return name


@pytest.fixture
def group(new_group: Callable[..., str]) -> str:
    """The name of an unused group."""
    return new_group()


@pytest.fixture(params=groups.PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    """Each group protocol: a test with this fixture runs once with each of them."""
    return str(request.param)


@pytest.fixture
def transactional_id(request: pytest.FixtureRequest, unique: Callable[[str], str]) -> str:
    """An unused transactional id."""
    return _coordinated(request, nodes.TRANSACTION, lambda: unique("id"))


def _has_one_node(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker(_ONE_NODE) is not None


def _coordinated(request: pytest.FixtureRequest, kind: int, new_name: Callable[[], str]) -> str:
    if not _has_one_node(request):
        return new_name()
    broker: brokers.Broker = request.getfixturevalue("broker")
    return nodes.name_coordinated_here(broker.bootstrap, kind, new_name)
