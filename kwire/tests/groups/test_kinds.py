"""A made-up second kind of group beside the classic one: the shard and the offsets need only its interface."""

from __future__ import annotations

from enum import Enum
from typing import Any, cast

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.list_groups import ListedGroup

from kwire.coordinators.effects import KeyedRecord, Step
from kwire.groups.classic.group import ClassicGroup
from kwire.groups.group import CheckPartition, Committer, Group, GroupKind, GroupType, accept_all
from testkit.groups.shard_driver import ShardDriver

MINUTE_MS = 60_000
RECORD_TYPE = 99
MEMBER = "captain"


class CrewType(Enum):
    CREW = "crew"

    @property
    def expires(self) -> bool:
        return True


CREW = cast(GroupType, CrewType.CREW)


@attrs.define(eq=False)
class Crew:
    """A group of one member, which is there or not."""

    group_id: str
    is_empty: bool
    type = CREW

    def state_name(self) -> str:
        return "Idle" if self.is_empty else "Sailing"

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, "", self.state_name(), self.type.value)

    def check_commit(self, committer: Committer) -> CheckPartition:
        if committer.member_id != MEMBER:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)
        return accept_all

    check_transactional_commit = check_commit

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        pass

    def check_offset_delete(self) -> None:
        pass

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def reads(self, topic: str) -> bool:
        return topic == "read"

    def offset_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms


@attrs.define(eq=False)
class CrewKind:
    groups: dict[str, Group]
    life: list[str] = attrs.field(factory=list)
    type = CREW
    record_types = (RECORD_TYPE,)

    def apply(self, key: bytes, value: bytes | None) -> None:
        group_id = key[2:].decode()
        if value is None:
            del self.groups[group_id]
        else:
            self.groups[group_id] = Crew(group_id, is_empty=not value)

    def tombstones(self, group_id: str) -> list[KeyedRecord]:
        return [crew_record(group_id, None)]

    def loaded(self, step: Step) -> None:
        self.life.append("loaded")

    def unload(self, step: Step) -> None:
        self.life.append("unloaded")

    def committed_by(self, step: Step, group_id: str, member_id: str) -> None:
        self.life.append(f"{member_id} of {group_id} committed")


def crew_record(group_id: str, value: bytes | None) -> KeyedRecord:
    return RECORD_TYPE.to_bytes(2, "big") + group_id.encode(), value


class WithCrew(ShardDriver):
    def __init__(self) -> None:
        super().__init__()
        shard = self.shard
        kind: GroupKind = CrewKind(shard.groups)
        self.life = cast(CrewKind, kind).life
        shard._kinds[CREW] = kind
        shard._kind_of_records[RECORD_TYPE] = kind
        shard.apply(*crew_record("crew", b"sailing"))

    def committed_in_crew(self, *, member_id: str = MEMBER, topic: str = "t") -> Any:
        (error,) = self.commit({(topic, 0): 7}, group="crew", member_id=member_id)
        return error


@pytest.fixture
def driver() -> WithCrew:
    return WithCrew()


def test_a_group_decides_who_may_commit_and_its_kind_is_notified(driver: WithCrew) -> None:
    assert driver.committed_in_crew(member_id="stranger") == ErrorCode.STALE_MEMBER_EPOCH
    assert driver.life == []
    assert driver.committed_in_crew() == ErrorCode.NONE
    assert driver.life == ["captain of crew committed"]
    assert driver.offset("t", 0, group="crew") == 7
    errors = driver.commit_transactional({("t", 0): 8}, group="crew", member_id="stranger")
    assert errors == [ErrorCode.STALE_MEMBER_EPOCH]


def test_groups_are_listed_by_type_and_state(driver: WithCrew) -> None:
    driver.commit({("t", 0): 1}, group="simple")
    shard = driver.shard
    assert [it.group_id for it in shard.list_groups()] == ["crew", "simple"]
    assert [it.group_id for it in shard.list_groups(types=["Crew"])] == ["crew"]
    assert [it.group_id for it in shard.list_groups(types=["classic"])] == ["simple"]
    assert [it.group_id for it in shard.list_groups(states=["sailing"])] == ["crew"]
    assert shard.list_groups(types=["crew"], states=["empty"]) == []


def test_a_group_is_deleted_by_the_tombstones_of_its_kind(driver: WithCrew) -> None:
    driver.committed_in_crew()
    assert driver.delete_groups("crew") == [ErrorCode.NON_EMPTY_GROUP]
    driver.shard.apply(*crew_record("crew", b""))
    assert driver.delete_groups("crew") == [ErrorCode.NONE]
    assert "crew" not in driver.shard.groups
    assert driver.offset("t", 0, group="crew") == -1


def test_what_a_group_reads_neither_goes_nor_expires(driver: WithCrew) -> None:
    driver.committed_in_crew(topic="read")
    driver.committed_in_crew(topic="t")
    assert driver.delete_offsets(("read", 0), group="crew") == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    driver.advance(driver.config.offsets_retention_ms + driver.config.offsets_retention_check_interval_ms)
    assert (driver.offset("read", 0, group="crew"), driver.offset("t", 0, group="crew")) == (7, -1)


def test_an_empty_group_goes_with_its_last_offset(driver: WithCrew) -> None:
    driver.committed_in_crew()
    driver.shard.apply(*crew_record("crew", b""))
    driver.advance(driver.config.offsets_retention_ms + driver.config.offsets_retention_check_interval_ms)
    assert "crew" not in driver.shard.groups


def test_the_apis_of_classic_groups_do_not_know_it(driver: WithCrew) -> None:
    assert driver.joined(driver.join(group="crew")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.heartbeat(MEMBER, 1, group="crew") == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.synced(driver.sync(MEMBER, 1, group="crew")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.leave(MEMBER, group="crew").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.state("crew") == "Dead"
    assert not isinstance(driver.shard.groups["crew"], ClassicGroup)


def test_a_kind_hears_of_the_start_and_the_end(driver: WithCrew) -> None:
    driver.shard.loaded(now=driver.now)
    driver.shard.unload(now=driver.now)
    assert driver.life == ["loaded", "unloaded"]
    assert driver.shard.groups == {}
