"""Producing and reading with aiokafka, as every client must find them."""

from __future__ import annotations

from typing import ClassVar

from testkit.clients import aio
from testkit.clients.records.aiokafka_client import Aiokafka
from testkit.clients.records.client import Client
from testkit.clients.records.scenes import ProduceScenes, ReadScenes

_loop = aio.LoopInThread()
loop_runs = aio.module_fixture_of(_loop)


class TestProducing(ProduceScenes):
    client: ClassVar[Client] = Aiokafka(_loop)


class TestReading(ReadScenes):
    client: ClassVar[Client] = Aiokafka(_loop)
