"""Producing and reading with confluent-kafka (librdkafka), as every client must find them."""

from __future__ import annotations

from typing import ClassVar

from testkit.clients.records.client import Client
from testkit.clients.records.librdkafka import Confluent
from testkit.clients.records.scenes import ProduceScenes, ReadScenes


class TestProducing(ProduceScenes):
    client: ClassVar[Client] = Confluent()


class TestReading(ReadScenes):
    client: ClassVar[Client] = Confluent()
