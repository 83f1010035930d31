"""Replication against everything that may happen in between: elections, deaths, restarts, late news, late answers."""

from __future__ import annotations

from hypothesis import settings

from testkit.worlds.replication.machine import ReplicationMachine

TestReplication = ReplicationMachine.TestCase
TestReplication.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
