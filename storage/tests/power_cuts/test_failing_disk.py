"""A disk that refuses one operation, at every operation of every trace, with EIO and ENOSPC in turn.

What was answered before stays; what was refused is not there, or is there whole; and what is left after the process
dies, or the power fails, holds as ever.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

import pytest
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.medium import EVERYTHING, NOTHING_UNSYNCED, Medium, persisted_part
from kwire_storage.disk.memory_disk import TornAppendError

from devtools.suite.tiers import small_and_full
from testkit.worlds.power_cuts.storage_traces import STORAGE_TRACES, storage_trace
from testkit.worlds.power_cuts.sweep import TALLY, Moment, State, examine, journal_of

SMALL_STEP = 9
"""At the small size only every ninth operation is refused; it is odd, so that both errors come."""


class Refusing(FaultyDisk):
    """A disk that refuses the operation of one number, a torn append with a part of it written."""

    def __init__(self, refused: int, error: OSError) -> None:
        super().__init__()
        left = refused

        def operate(operation: str, _path: str) -> None:
            nonlocal left
            left -= 1
            if left == -1 and (operation == "append" or not isinstance(error, TornAppendError)):
                raise error

        self.before_operation = operate


def refusal(number: int, *, torn: bool) -> OSError:
    code = (errno.EIO, errno.ENOSPC)[number % 2]
    return TornAppendError(70, code) if torn else OSError(code, os.strerror(code))


@small_and_full
@pytest.mark.parametrize("name", STORAGE_TRACES)
@pytest.mark.parametrize("torn", [False, True], ids=["refused", "torn"])
def test_a_refused_operation_breaks_no_promise(name: str, *, torn: bool, full: bool) -> None:
    kind = "torn" if torn else "refused"
    operations = len(journal_of(storage_trace(name), Medium()))
    for number in range(0, operations, 1 if full else SMALL_STEP):
        trace = storage_trace(name)
        disk = Refusing(number, refusal(number, torn=torn))
        # A broker would continue with its other work; here everything ends, and what was begun stays unanswered.
        with suppress(OSError):
            trace.run(disk)
        disk.before_operation = None
        position = len(disk.journal)
        events = [f"operation {number} failed ({kind}), then {position} changes had been made"]
        fates = {"nothing": NOTHING_UNSYNCED, "half": persisted_part(0.5), "everything": EVERYTHING}
        for left, fate in fates.items():
            medium = disk.medium.after_power_cut(fate)
            state = State(f"{name}/{kind}{number}/{left}", Moment(position, True), medium, events)
            examine(trace, state)
            TALLY.add(f"{name}, {kind}")
        state = State(f"{name}/{kind}{number}/kill", Moment(position, False), disk.medium.copy(), events)
        examine(trace, state)
        TALLY.add(f"{name}, {kind}")
