"""Heartbeats of members of consumer groups: most change nothing."""

from __future__ import annotations

from random import Random

import attrs
from kwire_protocol.conversation import decode_reply
from kwire_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)

from testkit.fast_paths.twins import Twins
from testkit.raw.client import request_frame

API_KEY = 68
GROUPS = ("readers", "others")


@attrs.define
class Member:
    group_id: str
    member_id: str
    host: str
    client_id: str
    epoch: int = 0
    instance_id: str | None = None
    owns: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = None


@attrs.define(eq=False)
class Grouping:
    random: Random
    twins: Twins
    hosts: tuple[str, ...]
    members: list[Member] = attrs.field(factory=list)
    _ids: int = 0

    def beat(self) -> None:
        """Sends the heartbeat of a member, which joins if there are few."""
        random = self.random
        if len(self.members) < 2 or (len(self.members) < 5 and random.random() < 0.02):
            self._ids += 1
            instance_id = f"i{self._ids}" if random.random() < 0.15 else None
            member = Member(
                random.choice(GROUPS),
                f"m{self._ids}",
                random.choice(self.hosts),
                random.choice(("one", "two")),
                instance_id=instance_id,
            )
            self.members.append(member)
        member = random.choice(self.members)
        for _ in range(random.randrange(1, 5)):
            if member in self.members:
                self._send(member)

    def _send(self, member: Member) -> None:
        random = self.random
        request = ConsumerGroupHeartbeatRequest(member.group_id, member.member_id, member.epoch)
        version, host, client_id = 1, member.host, member.client_id
        if member.epoch == 0:
            request.instance_id, request.rebalance_timeout_ms = member.instance_id, 5_000
            request.subscribed_topic_names = ["plain", "busy"] if random.random() < 0.7 else ["plain", "unknown"]
            request.topic_partitions = []
            if random.random() < 0.1:
                request.subscribed_topic_names, request.subscribed_topic_regex = None, "pl.*"
        elif member.owns is not None:
            request.topic_partitions, member.owns = member.owns, None
        elif random.random() < 0.2:
            version, host, client_id = self._vary(request, member, host, client_id)
        frame = request_frame(request, version, correlation_id=random.randrange(1 << 31), client_id=client_id)
        reply = self.twins.send(f"{host}#{member.member_id}", frame)
        # What else was sent on the connection comes first: the last reply is this one's, unless it waits.
        if reply and request.member_id == member.member_id and request.group_id == member.group_id:
            self._read(member, request, reply, version)

    def _vary(
        self, request: ConsumerGroupHeartbeatRequest, member: Member, host: str, client_id: str
    ) -> tuple[int, str, str]:
        random = self.random
        kind = random.choice((*range(15), 0, 3, 5, 6, 7, 7, 14))
        if kind == 0:
            request.member_epoch += random.choice((-1, 1, 5))
        elif kind == 1:
            request.member_epoch = -2 if member.instance_id else -1
            request.instance_id = member.instance_id
        elif kind == 2:
            request.subscribed_topic_names = random.choice((["plain"], ["plain", "busy"], []))
        elif kind == 3:
            request.instance_id = random.choice(("i1", "i2", member.instance_id))
        elif kind == 4:
            request.member_id = random.choice(("nobody", " ", ""))
        elif kind == 5:
            request.group_id = random.choice(("none", "", " ", "classic", "readers", "others"))
        elif kind == 6:
            client_id = "another"
        elif kind == 7:
            host = random.choice(self.hosts)
        elif kind == 8:
            request.rack_id = "rack"
        elif kind == 9:
            request.server_assignor = random.choice(("range", "uniform", "none"))
        elif kind == 10:
            request.topic_partitions = []
        elif kind == 11:
            request.rebalance_timeout_ms = 6_000
        elif kind == 12:
            return 0, host, client_id
        elif kind == 14:
            # Everything, as after an error: the response has the assignment.
            request.rebalance_timeout_ms, request.subscribed_topic_names = 5_000, ["plain", "busy"]
            request.topic_partitions = []
        else:
            request.subscribed_topic_regex = random.choice(("b.*", ""))
        return 1, host, client_id

    def _read(self, member: Member, request: ConsumerGroupHeartbeatRequest, reply: bytes, version: int) -> None:
        frames = []
        while reply:
            size = int.from_bytes(reply[:4], "big")
            frames.append(reply[4 : 4 + size])
            reply = reply[4 + size :]
        try:
            response = decode_reply(memoryview(frames[-1]), API_KEY, version)[1]
        except Exception:  # the reply of another request
            return
        if response.error_code or request.member_epoch < 0:
            member.epoch = 0
            if request.member_epoch == -1 and member in self.members:
                self.members.remove(member)
            return
        member.epoch = response.member_epoch
        if response.assignment is not None:
            member.owns = [
                ConsumerGroupHeartbeatRequestTopicPartitions(it.topic_id, list(it.partitions))
                for it in response.assignment.topic_partitions
            ]
