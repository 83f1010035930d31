"""The common parts of generated messages besides reading and writing."""

from __future__ import annotations

import copy
import pickle

import pytest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire_protocol.messages.list_groups import ListGroupsRequest

from testkit.messages.catalogue import ENTRIES

REQUEST = HeartbeatRequest("g", 7, member_id="m")


def test_messages_are_the_same_if_all_their_fields_are() -> None:
    assert HeartbeatRequest("g", 7, "m") == REQUEST
    assert HeartbeatRequest("g", 8, "m") != REQUEST
    assert HeartbeatResponse() != HeartbeatRequest()
    assert FetchTopic("t", partitions=[FetchPartition(1)]) == FetchTopic("t", partitions=[FetchPartition(1)])
    assert FetchTopic("t", partitions=[FetchPartition(1)]) != FetchTopic("t", partitions=[FetchPartition(2)])


def test_a_message_shows_its_fields() -> None:
    assert repr(REQUEST) == "HeartbeatRequest(group_id='g', generation_id=7, member_id='m', group_instance_id=None)"


def test_a_changed_copy_leaves_the_message_alone() -> None:
    assert REQUEST.replace(generation_id=8, group_instance_id="i") == HeartbeatRequest("g", 8, "m", "i")
    assert HeartbeatRequest("g", 7, "m") == REQUEST
    with pytest.raises(AttributeError):
        REQUEST.replace(generation=8)


def test_a_message_has_no_fields_but_its_own_and_no_hash() -> None:
    assert not hasattr(REQUEST, "__dict__")
    with pytest.raises(TypeError, match="unhashable"):
        hash(REQUEST)


def test_each_message_has_lists_of_its_own() -> None:
    one, other = FetchRequest(), FetchRequest()
    one.topics.append(FetchTopic("t"))
    assert other.topics == []
    given: list[str] = []
    assert ListGroupsRequest(given).states_filter is given


def test_messages_can_be_copied_and_go_to_other_processes() -> None:
    request = FetchRequest(topics=[FetchTopic("t", partitions=[FetchPartition(1)])])
    assert pickle.loads(pickle.dumps(request)) == copy.deepcopy(request) == request


def test_every_class_takes_its_fields_in_order() -> None:
    for entry in ENTRIES:
        for name, made in entry.classes.items():
            values = [object() for _ in entry.fields(name)]
            message = made(*values)
            assert [getattr(message, field.attribute) for field in entry.fields(name)] == values
