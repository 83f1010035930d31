"""The ledgers of everything at once: their complaints, and none without a reason."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from testkit.everything_at_once.story import CHECKPOINTED_WITHIN_S, Doubts, Outlived, Seen, Sent, Story
from testkit.everything_at_once.transactions import Began, Ended, Transactions
from testkit.kills.group_ledger import Spot
from testkit.kills.sigkill.ledger import Mark

SPOT = ("t", 0)


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def story(complaints: list[str]) -> Story:
    return Story(SPOT, 7, complaints.append)


def fill(story: Story, keys: str) -> list[Seen]:
    """A record of each key, acknowledged; an upper case key is a tombstone."""
    log: list[Seen] = []
    for offset, key in enumerate(keys):
        sent = story.send(key.lower().encode(), is_tombstone=key.isupper())
        story.acknowledge(sent, offset)
        log.append(Seen(offset, sent.key, story.mark(sent), sent.is_tombstone))
    return log


def check(story: Story, seen: Iterable[Seen], *, start: int = 0, older: Iterable[Mark] = ()) -> int:
    """Checks two equal readings."""
    found = story.check_records(seen, start, set(older).__contains__)
    doubts = story.doubts(found, story.acknowledged, start)
    story.complain_of(doubts.shared_with(doubts))
    return len(found)


# Records


def test_a_log_that_has_everything_is_right(story: Story, complaints: list[str]) -> None:
    assert check(story, fill(story, "abab")) == 4
    assert complaints == []


def test_an_acknowledged_record_that_is_missing_is_noticed(story: Story, complaints: list[str]) -> None:
    check(story, fill(story, "abab")[:-1])
    assert "lacks an acknowledged record, Sent(sequence=3, key=b'b', is_tombstone=False) at 3" in complaints[0]


def test_a_kill_may_take_back_the_log_start_during_a_reading(story: Story, complaints: list[str]) -> None:
    log = fill(story, "abab")
    first, second = ({it.offset: it for it in log[begin:]} for begin in (3, 2))
    doubts = story.doubts(first, story.acknowledged, 1)
    assert list(doubts.lacking) == [1, 2]
    shared = doubts.shared_with(story.doubts(second, story.acknowledged, 1))
    assert list(shared.lacking) == [1], "two readings lack it"
    story.complain_of(shared)
    assert len(complaints) == 1


def test_a_gap_is_noticed_where_nothing_is_compacted(story: Story, complaints: list[str]) -> None:
    log = fill(story, "abc")
    story.acknowledged.clear()
    check(story, [log[0], log[2]])
    assert "has offset 2 behind 0" in complaints[0]


def test_records_that_come_twice_or_late_are_noticed(story: Story, complaints: list[str]) -> None:
    log = fill(story, "ab")
    check(story, [*log, log[1]._replace(offset=2)])
    check(story, [log[0]._replace(mark=log[1].mark), log[1]._replace(mark=log[0].mark)])
    assert [it for it in complaints if " behind Mark(" in it]
    assert len([it for it in complaints if "was acknowledged" in it]) == 2


def test_a_record_of_a_topic_that_had_the_name_before_is_noticed(story: Story, complaints: list[str]) -> None:
    log = fill(story, "ab")
    stranger = Seen(2, b"c", Mark(3, 0), is_tombstone=False)
    check(story, [*log, stranger], older=[stranger.mark])
    assert complaints == [], "an unacknowledged record may be in either topic"
    check(story, [*log, stranger])
    assert "of another topic" in complaints[0]


def test_what_was_trimmed_or_has_aged_may_be_missing(story: Story, complaints: list[str]) -> None:
    log = fill(story, "abab")
    check(story, log[2:], start=2)
    assert complaints == []


# Compaction


def test_a_tombstone_that_is_unacknowledged_may_have_taken_the_latest(story: Story, complaints: list[str]) -> None:
    story.may_compact = True
    log = fill(story, "ab")
    check(story, log[1:])
    assert "lacks the latest record of b'a'" in complaints.pop()
    story.send(b"b", is_tombstone=True)
    check(story, log[1:])
    assert "lacks the latest record of b'a'" in complaints.pop()
    story.send(b"a", is_tombstone=True)
    check(story, log[1:])
    assert complaints == []


def test_of_each_key_the_latest_has_to_be_there(story: Story, complaints: list[str]) -> None:
    story.may_compact = True
    log = fill(story, "abab")
    check(story, log[2:])
    assert complaints == []
    check(story, [log[0], log[1], log[3]])
    assert "lacks the latest record of b'a'" in complaints[0]


def test_a_later_unacknowledged_record_may_be_the_latest(story: Story, complaints: list[str]) -> None:
    story.may_compact = True
    log = fill(story, "aa")
    del story.acknowledged[1]
    check(story, log[1:])
    assert complaints == []


def test_a_tombstone_may_go_and_then_nothing_older_may_be_there(story: Story, complaints: list[str]) -> None:
    story.may_compact = True
    log = {it.offset: it for it in fill(story, "aAbBcC")}
    known = story.acknowledged
    assert not story.doubts(log, known, 0)
    assert not story.doubts({2: log[2], 3: log[3]}, known, 0)
    doubts = story.doubts({0: log[0], 2: log[2], 4: log[4], 5: log[5]}, known, 0)
    assert doubts == Doubts({}, {0: Outlived(b"a", 1), 2: Outlived(b"b", 3)})
    assert not story.doubts({2: log[2]}, known, 4), "the tombstone is not in the log any more"
    story.complain_of(doubts)
    assert "lacks the tombstone of b'a' at 1, and has what it deleted at 0" in complaints[0]


# Bounds


def test_a_log_may_begin_no_higher_than_it_was_trimmed(story: Story, complaints: list[str]) -> None:
    fill(story, "abcd")
    story.begin_trim(2)
    story.check_bounds(2, 4, now_s=0)
    assert complaints == []
    story.check_bounds(3, 4, now_s=0)
    assert "begins at 3, but only records before 2 were deleted" in complaints[0]
    story.may_age = True
    story.check_bounds(4, 4, now_s=0)
    assert len(complaints) == 1


def test_what_was_trimmed_comes_back_by_a_kill_in_the_next_moments_only(story: Story, complaints: list[str]) -> None:
    fill(story, "abcd")
    story.begin_trim(3)
    story.trim(3, 3, now_s=10)
    story.check_bounds(0, 4, now_s=10 + CHECKPOINTED_WITHIN_S / 2)
    story.check_bounds(0, 4, now_s=10 + CHECKPOINTED_WITHIN_S)
    assert complaints == [], "it was taken back at once, whenever that is looked at"
    story.trim(3, 3, now_s=100)
    story.check_bounds(3, 4, now_s=100 + CHECKPOINTED_WITHIN_S)
    story.check_bounds(0, 4, now_s=101 + CHECKPOINTED_WITHIN_S)
    assert "begins at 0, but began at 3" in complaints[0]


def test_an_end_below_what_was_acknowledged_is_noticed(story: Story, complaints: list[str]) -> None:
    fill(story, "abcd")
    story.check_bounds(0, 3, now_s=0)
    assert "ends at 3, but clients know of records up to 4" in complaints[0]


def test_two_records_at_one_offset_are_noticed(story: Story, complaints: list[str]) -> None:
    fill(story, "a")
    story.acknowledge(Sent(5, b"b", is_tombstone=False), 0)
    assert "was acknowledged at 0" in complaints[0]


# Transactions

MONEY = (("money", 0), ("money", 1))


@pytest.fixture
def transactions(complaints: list[str]) -> Transactions:
    found = Transactions(complaints.append)
    for number, commits in enumerate((True, False, True)):
        found.begin(Began(1, number, MONEY, commits))
        found.end(Ended(1, number))
    return found


def seen(*numbers: int) -> dict[Spot, list[Mark]]:
    return {spot: [Mark(1, number) for number in numbers] for spot in MONEY}


def balance(number: int) -> list[Mark]:
    return [Mark(1, number)]


def test_whole_transactions_that_were_committed_are_right(transactions: Transactions, complaints: list[str]) -> None:
    assert transactions.check(seen(0, 2), balance(2), {1: 2}) == 2
    assert complaints == []
    assert transactions.next_number(1) == 3
    assert transactions.next_number(2) == 0


def test_a_transaction_whose_end_was_not_acknowledged_may_be_there_or_not(
    transactions: Transactions, complaints: list[str]
) -> None:
    transactions.begin(Began(1, 3, MONEY, commits=True))
    transactions.check(seen(0, 2), balance(2), {1: 2})
    transactions.check(seen(0, 2, 3), balance(3), {1: 3})
    assert complaints == []


@pytest.mark.parametrize(
    ("records", "balances", "offset", "complaint"),
    [
        (seen(0), balance(0), 0, "was committed, and is not seen at all"),
        (seen(0, 1, 2), balance(2), 2, "was never to be committed"),
        ({MONEY[0]: [Mark(1, 0), Mark(1, 2)], MONEY[1]: [Mark(1, 2)]}, balance(2), 2, "once"),
        (seen(2, 0), balance(2), 2, "behind"),
        (seen(0, 2), balance(0), 2, "and the compacted topic has 0"),
        (seen(0, 2), balance(2), 0, "and the offset of its group 0"),
        (seen(0, 2), [Mark(1, 1), Mark(1, 2)], 2, "of a transaction that is not seen elsewhere"),
    ],
)
def test_what_is_not_all_or_nothing_is_noticed(
    transactions: Transactions,
    complaints: list[str],
    records: dict[Spot, list[Mark]],
    balances: list[Mark],
    offset: int,
    complaint: str,
) -> None:
    transactions.check(records, balances, {1: offset})
    assert complaints
    assert complaint in complaints[0]
