"""Transactions of kafka-python."""

from __future__ import annotations

from typing import ClassVar

from testkit.clients.kafka_python_transactions import KafkaPython
from testkit.clients.transactions.client import Client
from testkit.clients.transactions.scenes import TransactionScenes


class TestTransactions(TransactionScenes):
    client: ClassVar[Client] = KafkaPython()
