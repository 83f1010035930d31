"""Administering with aiokafka, as every client must find it. It can neither delete groups nor change ACLs."""

from __future__ import annotations

from typing import ClassVar

from testkit.clients import aio
from testkit.clients.administration.aiokafka_client import Aiokafka
from testkit.clients.administration.client import Client
from testkit.clients.administration.scenes import GroupScenes, TopicScenes
from testkit.clients.groups import aiokafka_client as members
from testkit.clients.groups.client import Client as GroupClient

_loop = aio.LoopInThread()
loop_runs = aio.module_fixture_of(_loop)


class TestTopics(TopicScenes):
    client: ClassVar[Client] = Aiokafka(_loop)


class TestGroups(GroupScenes):
    client: ClassVar[Client] = Aiokafka(_loop)
    members: ClassVar[GroupClient] = members.Aiokafka(_loop)
