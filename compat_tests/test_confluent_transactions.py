"""Transactions of confluent-kafka (librdkafka)."""

from __future__ import annotations

from typing import ClassVar

from .groups import CONSUMER
from .transactions.client import Client
from .transactions.librdkafka import Confluent
from .transactions.restarts import RestartScenes
from .transactions.scenes import OffsetScenes, TransactionScenes


class TestTransactions(TransactionScenes):
    client: ClassVar[Client] = Confluent()


class TestTransactionsOfConsumerGroups(OffsetScenes):
    client: ClassVar[Client] = Confluent(protocol=CONSUMER)


class TestTransactionsOverARestart(RestartScenes):
    client: ClassVar[Client] = Confluent()
