"""Transactions of confluent-kafka (librdkafka)."""

from __future__ import annotations

from typing import ClassVar

from testkit.clients.transactions.client import Client
from testkit.clients.transactions.librdkafka import Confluent
from testkit.clients.transactions.restarts import RestartScenes
from testkit.clients.transactions.scenes import OffsetScenes, TransactionScenes
from testkit.raw.groups import CONSUMER


class TestTransactions(TransactionScenes):
    client: ClassVar[Client] = Confluent()


class TestTransactionsOfConsumerGroups(OffsetScenes):
    client: ClassVar[Client] = Confluent(protocol=CONSUMER)


class TestTransactionsOverARestart(RestartScenes):
    client: ClassVar[Client] = Confluent()
