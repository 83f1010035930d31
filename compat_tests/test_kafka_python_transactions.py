"""Transactions of kafka-python."""

from __future__ import annotations

from typing import ClassVar

from .kafka_python_transactions import KafkaPython
from .transactions.client import Client
from .transactions.scenes import TransactionScenes


class TestTransactions(TransactionScenes):
    client: ClassVar[Client] = KafkaPython()
