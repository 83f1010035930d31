"""File names, and what must never become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_storage import names


def test_a_segments_name_is_its_base_offset_in_twenty_digits() -> None:
    assert names.offset_name(4711, names.LOG) == "00000000000000004711.log"
    assert names.parse_offset_name("00000000000000004711.log") == (4711, ".log")


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "4711.log", "0000000000000000471x.log", "0" * 20, ".log"])
def test_other_names_are_not_taken_for_segments(name: str) -> None:
    assert names.parse_offset_name(name) is None


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../a", "a\\b", "a\0b", "a\nb", "x" * 254])
def test_a_topic_name_that_is_a_path_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="folder"):
        names.partition_folder(topic, 0)


def test_a_negative_partition_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        names.partition_folder("orders", -1)


@given(
    st.from_regex(r"[a-zA-Z0-9._-]{1,200}", fullmatch=True).filter(lambda name: name not in (".", "..")),
    st.integers(0, 10**6),
)
def test_a_partitions_folder_has_topic_and_partition(topic: str, partition: int) -> None:
    folder = names.partition_folder(topic, partition)
    assert names.parse_partition_folder(folder) == (topic, partition)
    deleted = names.deleted_folder(folder, bytes(16))
    assert names.is_deleted_folder(deleted)
    assert names.parse_partition_folder(deleted) is None
    assert len(deleted) <= 255


@pytest.mark.parametrize("name", ["orders", "orders-", "-0", "orders-x", ".kafka_cleanshutdown", "meta.properties"])
def test_other_folders_are_not_partitions(name: str) -> None:
    assert names.parse_partition_folder(name) is None
