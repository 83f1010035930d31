from __future__ import annotations

from itertools import islice

from kwire.backoff import Backoff


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    pauses_ms = Backoff(100, 5_000)
    expected = [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]
    assert [pauses_ms.after(failures) for failures in range(1, 9)] == expected
    assert [*islice(pauses_ms, 8)] == expected
    assert pauses_ms.after(1_000_000) == 5_000
    assert Backoff(0.05, 1.0).after(2) == 0.1


def test_a_first_pause_above_the_longest_is_cut() -> None:
    assert [*islice(Backoff(5, 2), 2)] == [2, 2]
    assert Backoff(5, 0).after(1) == 0
