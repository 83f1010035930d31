"""Work that the garbage collector, which stops the event loop, is spared."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest

from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.replicas.table import MANY_PARTITIONS
from kwire.runtime.futures import at_once
from kwire.runtime.garbage import lasting
from testkit.scenes.folder_scene import append, create, new_disks, open_broker
from testkit.scenes.partition_files import log_files


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()  # the tests themselves (conftest.py), of which some would end and be missed in the count
    yield
    gc.enable()
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def test_what_lasts_is_not_scanned_while_it_is_made_nor_later() -> None:
    frozen = gc.get_freeze_count()
    with lasting():
        assert not gc.isenabled()
        made = [[number] for number in range(1_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(made)


def test_many_new_partitions_are_not_scanned_again() -> None:
    broker = open_broker(new_disks())
    frozen = gc.get_freeze_count()
    create(broker, "few", MANY_PARTITIONS - 1)
    assert gc.get_freeze_count() == frozen
    create(broker, "many", MANY_PARTITIONS)
    assert gc.get_freeze_count() > frozen + 10 * MANY_PARTITIONS
    assert gc.isenabled()
    broker.close()


def test_deleted_partitions_go_without_the_garbage_collector() -> None:
    broker = open_broker(new_disks())
    partitions = create(broker, "t", 3)
    for partition in partitions:
        append(partition)
    parts = [
        weakref.ref(part)
        for it in partitions
        for part in (it, it.log, it.flush_gate, log_files(it).segments, log_files(it).producer_state)
        if hasattr(part, "__weakref__")
    ]
    assert len(parts) >= 6
    del partitions, partition
    gc.disable()
    at_once(broker.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=["t"]), version=5))
    assert [it() for it in parts] == [None] * len(parts)
    broker.close()
