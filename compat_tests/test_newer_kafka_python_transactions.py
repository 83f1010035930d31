"""Transactions of kafka-python 3.0 over a restart. 2.2 does not find its coordinator again, and waits for ever."""

from __future__ import annotations

from typing import ClassVar

from testkit.clients.kafka_python_transactions import KafkaPython
from testkit.clients.transactions.client import Client
from testkit.clients.transactions.restarts import RestartScenes


class TestTransactionsOverARestart(RestartScenes):
    client: ClassVar[Client] = KafkaPython()
