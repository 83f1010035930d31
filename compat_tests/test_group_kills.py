"""Members of both protocols in one group, and of a share group, killed again and again with their broker.

No record is skipped, and in the share group each comes to one end.

`make soak` does the same for longer. KWIRE_GROUPS_SEED repeats the kills of a run that failed, as far as the system's
scheduling lets them be repeated; KWIRE_GROUPS_KILLS is their number.
"""

from __future__ import annotations

import click
import pytest

from testkit.clients.share_consumers import ACCEPT, REJECT, RELEASE
from testkit.kills.group_kills.mistakes import MISTAKES, command
from testkit.kills.group_kills.scenario import Groups
from testkit.kills.group_kills.share_ledger import Letter, ShareLedger
from testkit.kills.group_ledger import GroupLedger
from testkit.kills.harness import kills_of_test, run, seed_of_test
from testkit.mutants.processes import parameters, parameters_of
from testkit.servers.brokers import IS_KAFKA, KwireServe, restartable_broker

# Apache Kafka takes ten times as long to come back.
KILLS = kills_of_test("KWIRE_GROUPS_KILLS", 6 if IS_KAFKA else 20)


@pytest.mark.more
@pytest.mark.timeout(180 + 20 * KILLS)
def test_kills_of_members_and_brokers_skip_no_record() -> None:
    seed = seed_of_test("KWIRE_GROUPS_SEED")
    with restartable_broker() as broker:
        account = run(Groups(broker, "readers"), kills=KILLS, seed=seed)
    click.echo(account)
    assert account.kills.total() == KILLS
    assert account.records > 20 * KILLS
    assert account.rejections > KILLS
    assert IS_KAFKA or account.letters >= account.rejections


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_with_share_groups_has_a_place_in_the_broker(name: str) -> None:
    for target, function in MISTAKES[name].targets.items():
        assert parameters_of(target) == parameters(function)


@pytest.mark.soak
@pytest.mark.skipif(IS_KAFKA, reason="the mistakes are made in kwire")
@pytest.mark.parametrize(
    ("name", "found_by"),
    [
        ("acknowledgements-lost-in-replay", "was accepted 2 times"),
        ("letters-sent-again-after-a-restart", "and has 2 dead letters"),
        ("the-first-letter-only", "every rejection has a letter"),
        ("a-wrong-count", "and its dead letter says"),
    ],
)
def test_each_mistake_with_share_groups_is_found(name: str, found_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KwireServe, "kwire", command(name))
    with restartable_broker() as broker, pytest.raises(AssertionError) as found:
        run(Groups(broker, "mistaken"), kills=10, seed=7)
    assert found_by in str(found.value)


def test_the_ledger_reports_what_nobody_read() -> None:
    ledger = GroupLedger()
    ledger.deliver(("t", 0), 0, 1, 2, 3)
    ledger.deliver(("t", 0), 2, 3, 4, 5)
    ledger.deliver(("t", 0), 8, 9)
    assert ledger.missing(("t", 0), 10) == [6, 7]
    assert ledger.missing(("t", 1), 2) == [0, 1]
    assert ledger.deliveries == 10


@pytest.mark.parametrize(
    ("acknowledgements", "letters", "fault"),
    [
        pytest.param([(0, 1, ACCEPT), (0, 1, ACCEPT)], [], "accepted 2 times", id="an acknowledgement was lost"),
        pytest.param([(0, 1, ACCEPT)], [Letter((0, 0), 1)], "accepted 1 times", id="accepted, and a dead letter"),
        pytest.param([(0, 1, REJECT), (0, 2, ACCEPT)], [], "rejected 1 times", id="delivered after a rejection"),
        pytest.param([(0, 1, REJECT)], [Letter((0, 0), 1)] * 2, "2 dead letters", id="a letter twice"),
        pytest.param([(0, 2, REJECT)], [Letter((0, 0), 1)], "its dead letter says 1", id="a wrong count"),
        pytest.param([(0, 3, RELEASE)], [Letter((0, 0), 3)], "its dead letter says 3", id="nobody rejected it"),
        pytest.param([(0, 6, RELEASE)], [], "for the 6th time", id="delivered too often"),
        pytest.param([(0, 2, REJECT), (1, 1, ACCEPT)], [Letter((0, 0), 2)], None, id="as it should be"),
        pytest.param([(0, 5, RELEASE)], [Letter((0, 0), 5)], None, id="the last delivery"),
    ],
)
def test_the_ledger_of_a_share_group_reports_what_cannot_be(
    acknowledgements: list[tuple[int, int, int]], letters: list[Letter], fault: str | None
) -> None:
    ledger = ShareLedger()
    for what in ("says", "said"):
        ledger.note(what, 0, *acknowledgements)
    faults = ledger.faults(letters)
    if fault is None:
        assert faults == []
    else:
        assert any(fault in it for it in faults), faults


def test_the_ledger_of_a_share_group_reports_what_is_missing() -> None:
    ledger = ShareLedger()
    ledger.note("says", 0, (0, 1, ACCEPT), (1, 1, REJECT), (2, 1, RELEASE), (3, 1, REJECT))
    ledger.note("said", 0, (3, 1, REJECT))
    assert ledger.deliveries == 4
    assert ledger.open({0: 5}, [Letter((0, 4), 1)]) == [(0, 1), (0, 2), (0, 3)]
    assert ledger.without_letters([Letter((0, 4), 1)]) == [(0, 3)]
    assert ledger.without_letters([Letter((0, 3), 1)]) == []
    assert ShareLedger(has_letters=False).without_letters([]) == []
