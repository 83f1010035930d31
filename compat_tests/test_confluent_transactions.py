"""Transactions of confluent-kafka (librdkafka)."""

from __future__ import annotations

from typing import ClassVar

from .transactions.client import Client
from .transactions.librdkafka import Confluent
from .transactions.restarts import RestartScenes
from .transactions.scenes import TransactionScenes


class TestTransactions(TransactionScenes):
    client: ClassVar[Client] = Confluent()


class TestTransactionsOverARestart(RestartScenes):
    client: ClassVar[Client] = Confluent()
