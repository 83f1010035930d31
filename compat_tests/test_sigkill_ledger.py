"""The ledger of the SIGKILL loop: its complaints, and none without a reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testkit.kills.sigkill.ledger import Ledger, Mark

SPOT = ("t", 0)


def sent(count: int, *, producers: int = 2) -> tuple[Ledger, list[bytes]]:
    """A ledger of records that were sent in turn, acknowledged and delivered, and the log that has them."""
    ledger = Ledger()
    log: list[bytes] = []
    for offset in range(count):
        mark = ledger.next_mark(SPOT, offset % producers)
        ledger.acknowledge(SPOT, offset, mark)
        log.append(mark.value(b"filling"))
        ledger.deliver(SPOT, offset, log[-1])
    return ledger, log


def complaints(ledger: Ledger, log: list[bytes], *, end: int | None = None, start: int = 0) -> list[str]:
    ledger.check_log(SPOT, len(log) if end is None else end, enumerate(log, start))
    return ledger.complaints


def test_a_log_that_has_everything_once_and_in_order_is_right() -> None:
    assert complaints(*sent(10)) == []


def test_records_that_were_not_acknowledged_may_be_there_once_they_were_sent() -> None:
    ledger, log = sent(10)
    log.append(ledger.next_mark(SPOT, 0).value(b""))
    ledger.deliver(SPOT, 10, log[-1])
    assert complaints(ledger, log) == []


BREAKAGES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "lost in the middle": (lambda log: log[:4] + log[5:], "some are lost"),
    "lost at the end": (lambda log: log[:-1], "has 4 records of producer 1, not 5"),
    "twice": (lambda log: [*log, log[-1]], "comes twice"),
    "reordered": (lambda log: [*log[:4], log[6], log[5], log[4], *log[7:]], "comes twice, or late"),
    "moved": (lambda log: [*log[:4], log[5], log[4], *log[6:]], "but clients were told"),
    "not sent": (lambda log: [*log, Mark(7, 0).value(b"")], "never given"),
    "changed": (lambda log: [*log[:3], log[3][:-1] + b"!", *log[4:]], "has changed"),
}


@pytest.mark.parametrize("how", BREAKAGES)
def test_a_broken_log_is_complained_of(how: str) -> None:
    breaks, complaint = BREAKAGES[how]
    ledger, log = sent(10)
    found = complaints(ledger, breaks(log))
    assert any(complaint in text for text in found), found


def test_a_gap_in_the_offsets_is_complained_of() -> None:
    assert complaints(*sent(3), start=1) != []


def test_an_end_that_is_not_the_logs_is_complained_of() -> None:
    assert complaints(*sent(3), end=4) == ["t-0 ends at 4, but has 3 records"]


def test_an_offset_keeps_its_record_for_ever() -> None:
    ledger, _ = sent(3)
    ledger.deliver(SPOT, 1, ledger.next_mark(SPOT, 0).value(b""))
    assert len(ledger.complaints) == 1


def test_what_was_not_delivered_is_complained_of() -> None:
    ledger, log = sent(3)
    ledger.group.delivered[SPOT].remove(1)
    assert complaints(ledger, log) == ["t-0: the group was never given 1 records, such as 1"]


@pytest.mark.parametrize(("found", "right"), [(4, False), (5, True), (9, True)])
def test_a_log_ends_behind_what_clients_know(found: int, right: bool) -> None:
    ledger, _ = sent(5)
    ledger.check_end(SPOT, ledger.end_of(SPOT), found)
    assert (ledger.complaints == []) == right


@pytest.mark.parametrize(("found", "right"), [(2, False), (3, True), (5, True), (6, False)])
def test_a_group_stands_between_its_last_commit_and_what_it_was_given(found: int, right: bool) -> None:
    ledger, _ = sent(5)
    ledger.group.commit({SPOT: 3})
    ledger.check_committed(ledger.group.known(), {SPOT: found})
    assert (ledger.complaints == []) == right
