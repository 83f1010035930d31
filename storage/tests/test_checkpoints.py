"""The small text files, byte for byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_storage import checkpoints
from kwire_storage.checkpoints import MetaProperties
from kwire_storage.errors import CorruptLogError

UUID = bytes(range(16))


def test_offset_checkpoints_have_a_row_for_each_partition() -> None:
    data = checkpoints.encode_offsets({("b", 0): 7, ("a", 1): 2**40})
    assert data == b"0\n2\na 1 1099511627776\nb 0 7\n"
    assert checkpoints.encode_offsets({}) == b"0\n0\n"


def test_an_empty_checkpoint_is_one_that_apache_kafka_made_and_wrote_nothing_to() -> None:
    assert checkpoints.decode_offsets(b"") == {}
    assert checkpoints.decode_epochs(b"") == []


def test_epoch_checkpoints_have_a_row_for_each_epoch() -> None:
    assert checkpoints.encode_epochs([(0, 0), (3, 17)]) == b"0\n2\n0 0\n3 17\n"


def test_partition_metadata_names_the_topic_id() -> None:
    data = checkpoints.encode_partition_metadata(UUID)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoints.decode_partition_metadata(data) == UUID
    assert checkpoints.decode_partition_metadata(data + b"\n") == UUID


def test_meta_properties_are_as_java_writes_them() -> None:
    meta = MetaProperties("kwire-cluster", 1, UUID)
    assert MetaProperties.decode(meta.encode()) == meta
    written_by_java = (
        b"#\n#Sat Nov 21 08:46:49 UTC 2026\ncluster.id=kwire-cluster\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n"
        b"node.id=1\nversion=1\n"
    )
    assert MetaProperties.decode(written_by_java) == meta


def test_the_clean_shutdown_mark_holds_the_broker_epoch() -> None:
    assert checkpoints.encode_clean_shutdown(17) == b'{"version":0,"brokerEpoch":17}'


@pytest.mark.parametrize(
    ("data", "epoch"),
    [
        (b'{"version":0,"brokerEpoch":17}', 17),
        (b'{"version": 0, "brokerEpoch": -1}', -1),
        (b'{"version":1,"brokerEpoch":17}', -1),
        (b'{"version":0}', -1),
        (b'{"version":0,"brokerEpoch":"17"}', -1),
        (b"[]", -1),
        (b"", -1),
        (b"\0\0\0", -1),
        (b"\xff", -1),
    ],
)
def test_the_epoch_of_a_clean_stop_is_unknown_if_its_file_is_not_as_kafka_writes_it(data: bytes, epoch: int) -> None:
    assert checkpoints.decode_clean_shutdown(data) == epoch


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9._-]+", fullmatch=True), st.integers(0, 2**31 - 1)),
        st.integers(0, 2**63 - 1),
    )
)
def test_offsets_survive_their_file(offsets: dict[tuple[str, int], int]) -> None:
    assert checkpoints.decode_offsets(checkpoints.encode_offsets(offsets)) == offsets


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))))
def test_epochs_survive_their_file(entries: list[tuple[int, int]]) -> None:
    assert checkpoints.decode_epochs(checkpoints.encode_epochs(entries)) == entries


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (checkpoints.decode_offsets, b"\n"),
        (checkpoints.decode_offsets, b"1\n0\n"),
        (checkpoints.decode_offsets, b"0\nx\n"),
        (checkpoints.decode_offsets, b"0\n2\na 0 1\n"),
        (checkpoints.decode_offsets, b"0\n1\na 0\n"),
        (checkpoints.decode_offsets, b"0\n1\na 0 x\n"),
        (checkpoints.decode_epochs, b"\xff\xff"),
        (checkpoints.decode_epochs, b"0\n1\n0 x\n"),
        (checkpoints.decode_partition_metadata, b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw"),
        (checkpoints.decode_partition_metadata, b"version: 0\n"),
        (checkpoints.decode_partition_metadata, b"version: 0\ntopic_id: AAEC"),
        (checkpoints.decode_partition_metadata, b"version: 0\ntopic_id: A"),
        (MetaProperties.decode, b""),
        (MetaProperties.decode, b"version=0\n"),
        (MetaProperties.decode, b"version=1\ncluster.id=x\nnode.id=y\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n"),
    ],
)
def test_a_file_that_is_something_else_is_an_error(decode: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(CorruptLogError):
        decode(data)
