"""Producing and reading with aiokafka, as every client must find them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from testkit.clients import aio
from testkit.clients.records.aiokafka_client import Aiokafka
from testkit.clients.records.client import Client
from testkit.clients.records.scenes import ProduceScenes, ReadScenes

_loop = aio.LoopInThread()


@pytest.fixture(scope="module", autouse=True)
def loop_runs() -> Iterator[None]:
    _loop.start()
    yield
    _loop.stop()


class TestProducing(ProduceScenes):
    client: ClassVar[Client] = Aiokafka(_loop)


class TestReading(ReadScenes):
    client: ClassVar[Client] = Aiokafka(_loop)
