"""One ZooKeeper for all tests of this package, with a path of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from devtools.ports import free_port
from devtools.zookeeper import ZooKeeper
from kwire.cluster.zookeeper.session import Session
from kwire.config.zookeeper import ZooKeeperConfig
from testkit.cluster.certificates import Certificates
from testkit.cluster.zookeeper_nodes import zookeeper_config

_paths = count(1)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def zookeeper(certificates: Certificates) -> Iterator[ZooKeeper]:
    """Its secureClientPort takes clients with a certificate of the authority only."""
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": free_port(),
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": certificates.server,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": certificates.authority,
        "ssl.trustStore.type": "PEM",
    }
    with ZooKeeper(settings) as server:
        yield server


@pytest.fixture
def connect(zookeeper: ZooKeeper) -> str:
    """Returns a zookeeper.connect that no other test has."""
    return f"{zookeeper.connect}/test/{next(_paths)}"


@pytest.fixture
def config(connect: str) -> ZooKeeperConfig:
    return zookeeper_config(connect)


@pytest.fixture
def brief_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node waits 2.5 s, and not a session's time, for the end of another one's session.

    ZooKeeper must answer within the same setting, and with other work beside it takes longer than some 100 ms.
    """
    wait_for_end = Session.wait_for_end

    def wait_briefly(session: Session, path: str) -> bool:
        session.timeout_ms = 2_000
        return wait_for_end(session, path)

    monkeypatch.setattr(Session, "wait_for_end", wait_briefly)
