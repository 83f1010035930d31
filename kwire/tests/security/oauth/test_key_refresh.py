"""The schedule of key fetches: the machine alone, with numbers for the time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kwire.security.oauth.keys import KeySet
from kwire.security.oauth.refresh import MAX_UNKNOWN, KeyRefresh
from testkit.security.oauth.issuer import jwk, jwks

KEYS = KeySet.parse(jwks(jwk("k1")))
HOUR = 3_600_000


def refresh() -> KeyRefresh:
    return KeyRefresh(refresh_ms=HOUR, backoff_ms=100, backoff_max_ms=10_000, spacing_ms=10_000)


def fresh(now_ms: int = 0) -> KeyRefresh:
    machine = refresh()
    machine.due_ms(now_ms)
    machine.succeeded(KEYS, now_ms)
    return machine


def test_keys_are_fetched_at_once_and_then_in_intervals() -> None:
    machine = refresh()
    assert machine.due_ms(5) == 5
    assert machine.trouble == "they have not been fetched yet"
    machine.succeeded(KEYS, 70)
    assert machine.keys is KEYS
    assert machine.due_ms(71) == 70 + HOUR
    machine.succeeded(None, 70 + HOUR)
    assert machine.keys is KEYS
    assert machine.due_ms(71 + HOUR) == 70 + 2 * HOUR


def test_after_failures_the_pauses_double_up_to_the_longest() -> None:
    machine = refresh()
    machine.due_ms(0)
    now_ms, pauses = 0, []
    for _ in range(10):
        machine.failed("refused", now_ms)
        pauses.append(machine.due_ms(now_ms) - now_ms)
        now_ms += pauses[-1]
    assert pauses == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]
    assert machine.trouble == "refused"
    machine.succeeded(KEYS, now_ms)
    machine.failed("refused", now_ms + 1)
    assert machine.due_ms(now_ms + 1) == now_ms + 101


def test_the_keys_of_the_last_success_stay_in_use() -> None:
    machine = fresh()
    machine.failed("refused", HOUR)
    assert machine.keys is KEYS
    assert machine.trouble is None


def test_an_unknown_key_is_fetched_for_once_a_minute() -> None:
    machine = fresh()
    notified = []
    machine.on_wanted = lambda: notified.append("wanted")
    machine.note_unknown("new")
    assert notified == ["wanted"]
    assert machine.due_ms(20_000) == 20_000
    machine.succeeded(KEYS, 20_001)
    machine.note_unknown("new")
    assert machine.due_ms(79_999) == 20_001 + HOUR
    machine.note_unknown("new")
    assert machine.due_ms(80_000) == 80_000


def test_an_unknown_key_does_not_put_off_the_next_fetch() -> None:
    machine = fresh()
    machine.refresh_ms = 5000
    machine.succeeded(KEYS, 0)
    machine.note_unknown("new")
    assert machine.due_ms(1) == 5000


def test_unknown_keys_do_not_make_fetches_follow_each_other_closely() -> None:
    machine = fresh(now_ms=0)
    machine.note_unknown("a")
    assert machine.due_ms(1) == 10_000
    machine.note_unknown("b")
    assert machine.due_ms(10_000) == 10_000
    machine.succeeded(KEYS, 10_050)
    machine.note_unknown("c")
    assert machine.due_ms(10_060) == 20_050


def test_a_new_key_may_be_requested_again_once_it_was_there() -> None:
    machine = fresh()
    machine.note_unknown("k1")
    machine.due_ms(20_000)
    machine.succeeded(KEYS, 20_000)  # It has k1.
    machine.note_unknown("k1")
    assert machine.due_ms(40_000) == 40_000


def test_unknown_keys_do_not_shorten_the_pauses_after_failures() -> None:
    machine = fresh()
    machine.spacing_ms = 1
    machine.due_ms(HOUR)
    for _ in range(20):
        machine.failed("refused", HOUR)
    machine.note_unknown("new")
    assert machine.due_ms(HOUR + 1) == HOUR + 10_000


def test_of_very_many_unknown_keys_the_last_are_remembered() -> None:
    machine = fresh()
    for number in range(2 * MAX_UNKNOWN):
        machine.note_unknown(str(number))
        machine.due_ms(20_000)
    assert list(machine._requested_at_ms) == [str(number) for number in range(MAX_UNKNOWN, 2 * MAX_UNKNOWN)]
    machine.succeeded(KEYS, 20_000)
    machine.note_unknown("20")
    assert machine.due_ms(30_000) == 20_000 + HOUR
    machine.note_unknown("0")
    assert machine.due_ms(30_000) == 30_000


def test_names_that_are_too_long_or_missing_ask_for_nothing() -> None:
    machine = fresh()
    machine.note_unknown(None)
    machine.note_unknown("x" * 1001)
    assert machine.due_ms(20_000) == HOUR


def test_of_very_many_names_before_one_look_the_first_are_heard() -> None:
    machine = fresh()
    notified = []
    machine.on_wanted = lambda: notified.append("wanted")
    for number in range(2 * MAX_UNKNOWN):
        machine.note_unknown(str(number))
    assert len(notified) == MAX_UNKNOWN
    machine.due_ms(20_000)
    machine.note_unknown("one more")
    assert len(notified) == MAX_UNKNOWN + 1


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 200_000), st.booleans()), max_size=60))
def test_whatever_tokens_name_the_memory_is_bounded_and_fetches_keep_apart(steps: list[tuple[int, int, bool]]) -> None:
    machine = fresh()
    now_ms = fetched_ms = 0
    for kid, pause_ms, is_looked_at in steps:
        now_ms += pause_ms
        machine.note_unknown(str(kid))
        assert len(machine._wanted) <= MAX_UNKNOWN
        if is_looked_at and machine.due_ms(now_ms) <= now_ms:
            assert now_ms - fetched_ms >= machine.spacing_ms
            fetched_ms = now_ms
            machine.succeeded(KEYS, now_ms)
        assert len(machine._requested_at_ms) <= MAX_UNKNOWN
