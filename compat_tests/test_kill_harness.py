"""The loop of the kills: laps, plans, progress, and the text of a failure. No process is killed."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from testkit.kills import harness
from testkit.kills.complaints import Complaints
from testkit.kills.harness import Lap, Scenario, kills_of_test, run, seed_of_test

WAYS = ("an arrow", "a bow", "a club")


@attrs.define
class Account(harness.Account):
    @property
    def outcome(self) -> str:
        return "nothing lost"


@attrs.define(eq=False)
class Play(Scenario[Account]):
    """A scenario that only records its kills."""

    kills_in_lap: int | None = 4
    then: Callable[[Lap], None] = lambda lap: None
    """Called after each kill."""
    account: Account = attrs.field(factory=Account)
    laps: list[list[str]] = attrs.field(factory=list)

    def run_lap(self, lap: Lap) -> None:
        self.laps.append([])
        for way in lap.kills(lap.each_equally(WAYS)):
            self.laps[-1].append(way)
            self.then(lap)

    def state(self) -> str:
        return "the stage"


def test_kills_are_counted_and_shared_out_among_laps() -> None:
    play, seen = Play(), list[int]()
    account = run(play, kills=10, seed=1, on_kill=lambda account: seen.append(account.kills.total()))
    assert [len(lap) for lap in play.laps] == [4, 4, 2]
    assert seen == list(range(1, 11))
    assert str(account).startswith("10 kills (")
    assert str(account).endswith("); nothing lost")


def test_a_scenario_without_laps_has_one() -> None:
    play = Play(kills_in_lap=None)
    run(play, kills=9, seed=1)
    assert [len(lap) for lap in play.laps] == [9]
    assert play.account.kills == dict.fromkeys(WAYS, 3)


def test_a_seed_decides_the_order_and_another_one_decides_another() -> None:
    def order(seed: int) -> list[list[str]]:
        play = Play()
        run(play, kills=12, seed=seed)
        return play.laps

    assert order(7) == order(7)
    assert order(7) != order(8)
    assert order(7)[0] != order(7)[1]


def test_a_complaint_ends_the_lap_and_is_reported_with_its_place_and_the_seed() -> None:
    def complain(lap: Lap) -> None:
        if lap.account.kills.total() == 5:
            lap.complaints.add("a record is lost")

    play = Play(then=complain)
    with pytest.raises(AssertionError) as failed:
        run(play, kills=12, seed=1)
    message = str(failed.value)
    assert message.startswith(f"seed 1, lap 1, kill 6 ({play.laps[1][1]}):")
    assert "a record is lost" in message
    assert message.endswith("the stage")
    assert [len(lap) for lap in play.laps] == [4, 2]


def test_a_complaint_of_the_end_fails_the_run() -> None:
    class Late(Play):
        def run_lap(self, lap: Lap) -> None:
            super().run_lap(lap)
            lap.complaints.add("the sum is wrong")

    with pytest.raises(AssertionError, match=r"lap 0, after the last kill:\n(.|\n)*the sum is wrong"):
        run(Late(), kills=2, seed=1)


def test_what_a_kill_raises_is_reported_with_the_complaints_before_it() -> None:
    def raise_(lap: Lap) -> None:
        lap.complaints.add("a client ended")
        raise AssertionError("no broker")

    with pytest.raises(AssertionError, match=r"kill 1 \(a.*\):\n  no broker\n  a client ended"):
        run(Play(then=raise_), kills=2, seed=1)


def test_the_first_complaints_are_kept_and_each_of_them_is_reported() -> None:
    reported: list[str] = []
    complaints = Complaints(reported.append)
    complaints.add_all(str(number) for number in range(1000))
    assert reported == list(complaints) == [str(number) for number in range(50)]
    with pytest.raises(AssertionError, match="50 complaints"):
        complaints.check()


def test_the_environment_repeats_a_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KWIRE_PLAY_SEED", "17")
    monkeypatch.setenv("KWIRE_PLAY_KILLS", "3")
    assert (seed_of_test("KWIRE_PLAY_SEED"), kills_of_test("KWIRE_PLAY_KILLS", 9)) == (17, 3)
    monkeypatch.delenv("KWIRE_PLAY_SEED")
    monkeypatch.delenv("KWIRE_PLAY_KILLS")
    drawn = seed_of_test("KWIRE_PLAY_SEED")
    assert kills_of_test("KWIRE_PLAY_KILLS", 9) == 9
    assert capsys.readouterr().out.splitlines() == ["KWIRE_PLAY_SEED=17", f"KWIRE_PLAY_SEED={drawn}"]
