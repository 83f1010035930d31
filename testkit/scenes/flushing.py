"""A broker on a disk whose syncs a test holds back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs
import pytest
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.wire import ApiMessage
from kwire_storage.disk.files import Disk

from kwire.testing import Broker
from testkit.raw.client import RawClient
from testkit.storage.slow_disk import SlowDisk

QUICK_S = 0.1
"""The wait for an answer that must not come: one that is sent too early would be there by then."""


@attrs.define(eq=False)
class BrokerOn(Broker):
    """A broker on a disk of the test's."""

    disk: Disk = attrs.field(kw_only=True)

    def _open_disk(self) -> Disk:
        return self.disk


@contextmanager
def broker_on(disk: SlowDisk, settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """A broker with topic `t`, of one partition, that flushes each record."""
    broker = BrokerOn(disk=disk, settings=settings or {})
    with broker, RawClient(broker.address) as client:
        create_topic(client)
        yield broker
        disk.holds = False


def create_topic(client: RawClient) -> None:
    topic = CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("flush.messages", "1")])
    client.call(CreateTopicsRequest([topic]), 5)


@contextmanager
def held(client: RawClient, request: ApiMessage, version: int, disk: SlowDisk) -> Iterator[None]:
    """Sends a request and holds its sync until the block ends; no answer comes before."""
    client.send_requests((request, version))
    disk.wait_for_sync()
    assert_silent(client)
    yield
    disk.let_sync_end()


def assert_silent(client: RawClient) -> None:
    timeout = client.sock.gettimeout()
    client.sock.settimeout(QUICK_S)
    with pytest.raises(TimeoutError):
        client.receive(1)
    client.sock.settimeout(timeout)
