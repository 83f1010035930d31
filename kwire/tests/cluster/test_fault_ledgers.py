"""The ledgers find losses and repetitions."""

from __future__ import annotations

import pytest

from testkit.kills.cluster_faults.ledgers import Acknowledged, Decided
from testkit.kills.group_ledger import GroupLedger

WROTE = [{0: b"0", 1: b"2"}, {0: b"1"}]
"""What two partitions have."""


def acknowledged() -> Acknowledged:
    ledger = Acknowledged(2)
    for partition, values in enumerate(WROTE):
        for offset, value in values.items():
            ledger.acknowledge(partition, offset, value, 0.1)
    return ledger


def decided() -> Decided:
    ledger = Decided(aborted={b"1"}, unknown={b"2"})
    for value in (b"0", b"3"):
        ledger.commit(value, 0.1)
    return ledger


def test_a_log_with_what_was_acknowledged_is_no_complaint() -> None:
    assert list(acknowledged().complaints(WROTE)) == []


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ({0: b"0"}, "has lost 1 acknowledged records, such as offset 1"),
        ({0: b"0", 1: b"2", 2: b"4"}, "has 1 records that nobody was told of, such as 2"),
        ({0: b"0", 1: b"4"}, "has another record than was acknowledged at 1"),
        ({0: b"0", 1: b"0"}, "has records twice"),
        ({0: b"2", 1: b"0"}, "are out of order"),
    ],
)
def test_a_log_with_anything_else_is_a_complaint(found: dict[int, bytes], complaint: str) -> None:
    assert any(complaint in it for it in acknowledged().complaints([found, WROTE[1]]))


def test_a_record_whose_offset_the_producer_does_not_know_has_to_be_there() -> None:
    ledger = acknowledged()
    ledger.acknowledge(1, None, b"3", 0.1)
    assert list(ledger.complaints([WROTE[0], {0: b"1", 1: b"3"}])) == []
    [complaint] = ledger.complaints(WROTE)
    assert complaint == "partition 1 has lost 1 acknowledged records, such as b'3'"


def test_an_error_that_reached_a_producer_is_a_complaint() -> None:
    ledger = acknowledged()
    ledger.errors.append("timed out")
    assert list(ledger.complaints(WROTE)) == ["the producer was told timed out"]


@pytest.mark.parametrize("values", [[b"0", b"3"], [b"0", b"2", b"3"]])
def test_committed_transactions_and_all_or_nothing_of_an_unknown_one_are_no_complaint(values: list[bytes]) -> None:
    found = [dict(enumerate(values)), {2 * offset: value for offset, value in enumerate(values)}]
    assert list(decided().complaints(found)) == []


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ([b"0"], "has lost 1 committed transactions, such as b'3'"),
        ([b"0", b"1", b"3"], "has 1 transactions that did not commit, such as b'1'"),
        ([b"0", b"3", b"3"], "has a transaction's record twice"),
        ([b"3", b"0"], "are out of order"),
        ([b"0", b"2", b"3"], "has other transactions than partition 0"),
    ],
)
def test_any_other_transactions_are_a_complaint(values: list[bytes], complaint: str) -> None:
    found = [{0: b"0", 1: b"3"}, dict(enumerate(values))]
    assert any(complaint in it for it in decided().complaints(found))


def test_a_group_is_behind_until_it_has_committed_the_last_record() -> None:
    group, found = GroupLedger(), {("t", 0): {0: b"a", 5: b"b"}, ("t", 1): {}}
    assert group.is_behind(found)
    group.commit({("t", 0): 5})
    assert group.is_behind(found)
    group.commit({("t", 0): 6})
    assert not group.is_behind(found)


def test_records_that_no_member_was_given_and_records_that_are_not_there_are_complaints() -> None:
    group = GroupLedger()
    group.deliver(("t", 0), 0)
    group.deliver(("t", 0), 7)
    complaints = list(group.complaints({("t", 0): {0: b"a", 5: b"b"}}))
    assert complaints == [
        "no member was given 1 records of ('t', 0), such as offset 5",
        "members were given 1 records of ('t', 0) that are not there, such as 7",
    ]


def test_a_commit_that_was_acknowledged_and_is_gone_is_a_complaint() -> None:
    acknowledged_ = {("t", 0): 5, ("t", 1): 3}
    assert list(GroupLedger.lost(acknowledged_, {("t", 0): 5, ("t", 1): 4})) == []
    assert len(list(GroupLedger.lost(acknowledged_, {("t", 0): 4}))) == 2
