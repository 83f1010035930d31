from __future__ import annotations

from kwire.coordinators.backoff import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, pause_ms


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    pauses = [pause_ms(failures) for failures in range(1, 9)]
    assert pauses == [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]
    assert (pauses[0], pauses[-1]) == (FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
    assert pause_ms(1_000_000) == LONGEST_PAUSE_MS
