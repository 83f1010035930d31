"""Producing and reading with kafka-python, as every client must find them."""

from __future__ import annotations

from typing import ClassVar

from testkit.clients.records.client import Client
from testkit.clients.records.kafka_python import KafkaPython
from testkit.clients.records.scenes import ProduceScenes, ReadScenes


class TestProducing(ProduceScenes):
    client: ClassVar[Client] = KafkaPython()


class TestReading(ReadScenes):
    client: ClassVar[Client] = KafkaPython()
