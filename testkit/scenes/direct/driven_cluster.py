"""A broker as `kwire txn` finds a cluster: of one node, without sockets."""

from __future__ import annotations

from typing import Any

import attrs
from kwire_protocol.messages import APIS as MESSAGES
from kwire_protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire_protocol.wire import Reader

from kwire.admin.hanging import find_hanging
from kwire.admin.transactions import TransactionAdmin
from kwire.client.cluster import Cluster
from kwire.handlers.apis import APIS
from testkit.fakes.brokers import FakeBrokers, FakeClock
from testkit.scenes.direct.broker_driver import BrokerDriver


@attrs.define(eq=False)
class _BrokersClock(FakeClock):
    """A clock that runs the broker while the client sleeps."""

    driver: BrokerDriver = attrs.field(kw_only=True)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.driver.advance(round(seconds * 1000))


def connected(driver: BrokerDriver) -> Cluster:
    """A client of this broker. Its requests are encoded and decoded as on the wire."""

    def answer(_: int, request: Any) -> Any:
        version = network.versions[type(request)]
        answered = driver.call(request, version)
        if isinstance(request, MetadataRequest):  # the handler encodes it itself
            return MetadataResponse.read(Reader(answered.body), version)
        return answered

    network = FakeBrokers(
        node_ids=[driver.broker.config.node_id],
        answers=dict.fromkeys((api.request_class for api in MESSAGES.values()), answer),
        newest={api_key: api.versions[-1] for api_key, api in APIS.items()},
        clock=_BrokersClock(driver=driver),
    )
    return network.cluster()


def abort_what_hangs(driver: BrokerDriver) -> list[str]:
    """Aborts hanging transactions as an operator does: `kwire txn list --hanging`, then `kwire txn abort`. Returns
    them.
    """
    with connected(driver) as cluster:
        admin = TransactionAdmin(cluster)
        max_timeout_ms = driver.broker.config.transaction_max_timeout_ms
        found = find_hanging(admin, now_ms=driver.now_ms, max_timeout_ms=max_timeout_ms)
        assert not found.problems, found.problems
        for it in found.found:
            admin.write_abort_marker(it)
    return [f"producer {it.producer_id} in {it.name} from {it.start_offset} on" for it in found.found]
