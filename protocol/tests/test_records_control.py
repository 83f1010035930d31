"""Keys and values of control records, known and unknown ones."""

from __future__ import annotations

import pytest
from kwire_protocol.records import (
    ControlType,
    InvalidBatch,
    control_key,
    end_transaction_value,
    read_control_type,
    read_coordinator_epoch,
    versioned,
)


@pytest.mark.parametrize("kind", ControlType)
def test_keys_are_read_back(kind: ControlType) -> None:
    assert read_control_type(control_key(kind)) is kind
    assert read_control_type(b"\0\5" + control_key(kind)[2:] + b"later") is kind


def test_types_of_a_later_kafka_are_passed_over() -> None:
    assert read_control_type(control_key(7)) is None
    assert read_control_type(control_key(-1)) is None


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_what_is_no_control_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(InvalidBatch):
        read_control_type(key)


def test_the_coordinators_epoch_is_read_back_and_later_versions_are_read_as_the_known_one() -> None:
    assert read_coordinator_epoch(end_transaction_value(12)) == 12
    assert read_coordinator_epoch(b"\0\1" + end_transaction_value(12)[2:] + b"more") == 12
    for value in (None, b"", b"\0\0\0\0\0", b"\xff\xff\0\0\0\1"):
        with pytest.raises(InvalidBatch):
            read_coordinator_epoch(value)


def test_versions_stand_in_front() -> None:
    assert versioned(1, b"abc") == b"\0\1abc"
