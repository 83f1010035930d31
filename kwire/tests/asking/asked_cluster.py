"""A broker as `kwire txn` finds a cluster: of one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire_protocol.wire import ApiMessage, Reader

from kwire.apis import APIS
from kwire.cli.txn.admin import TransactionAdmin
from kwire.cli.txn.hanging import find_hanging
from kwire.tests.asking.asked_broker import AskedBroker


@attrs.frozen
class AskedCluster:
    """See `kwire.cli.txn.admin.Brokers`."""

    asked: AskedBroker

    def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        names = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        version = APIS[MetadataRequest.api_key].versions[-1]
        answered = self.call(MetadataRequest(names))
        return MetadataResponse.read(Reader(answered.body), version)

    def node_ids(self) -> list[int]:
        return [self.asked.broker.config.node_id]

    def call(self, request: ApiMessage, *, node_id: int | None = None, at_least: int = 0) -> Any:
        return self.asked.call(request, APIS[request.api_key].versions[-1])

    def pause(self, seconds: float) -> None:
        self.asked.advance(round(seconds * 1000))


def abort_what_hangs(asked: AskedBroker) -> list[str]:
    """As an operator does it: `kwire txn list --hanging`, then `kwire txn abort`. What hung."""
    admin = TransactionAdmin(AskedCluster(asked))
    max_timeout_ms = asked.broker.config.transaction_max_timeout_ms
    found = find_hanging(admin, now_ms=asked.now_ms, max_timeout_ms=max_timeout_ms)
    assert not found.problems, found.problems
    for it in found.found:
        admin.write_abort_marker(it)
    return [f"producer {it.producer_id} in {it.name} from {it.start_offset} on" for it in found.found]
