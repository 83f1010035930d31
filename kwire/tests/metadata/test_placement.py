"""Which brokers get new replicas: all of them as many, in as many racks as there are."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.internal.metadata_brokers import RegisterBrokerRecord

from kwire.metadata.controller.partitions.placement import place
from kwire.metadata.image import MetadataImage

RACKS = st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=8)


def cluster(racks: list[str | None]) -> MetadataImage:
    image = MetadataImage()
    for broker_id, rack in enumerate(racks, start=1):
        image.apply(RegisterBrokerRecord(broker_id=broker_id, rack=rack, fenced=False), offset=broker_id)
    return image


def placed(racks: list[str | None], count: int, replication_factor: int) -> list[list[int]]:
    return place(cluster(racks), first_partition=0, count=count, replication_factor=replication_factor)


def test_leaders_go_round_and_followers_are_shifted_with_each_round() -> None:
    assert placed([None] * 3, 7, 2) == [[1, 2], [2, 3], [3, 1], [1, 3], [2, 1], [3, 2], [1, 2]]
    assert placed([None], 2, 1) == [[1], [1]]


def test_replicas_are_in_different_racks() -> None:
    assert placed(["a", "a", "b", "b"], 4, 2) == [[1, 3], [3, 2], [2, 4], [4, 1]]
    assert placed(["a", "a", "a", "b"], 4, 2) == [[1, 4], [4, 2], [2, 4], [3, 4]]


@given(racks=RACKS, data=st.data())
def test_leaders_are_even_and_replicas_in_all_racks_if_possible(racks: list[str | None], data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    rounds = data.draw(st.integers(1, 3))
    assignment = placed(racks, rounds * len(racks), factor)
    assert set(Counter(replicas[0] for replicas in assignment).values()) == {rounds}
    kinds = {rack or number for number, rack in enumerate(racks)}
    for replicas in assignment:
        assert len(set(replicas)) == factor
        used = {racks[it - 1] or it - 1 for it in replicas}
        assert len(used) == min(factor, len(kinds))
