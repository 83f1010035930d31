"""The power fails after every change of every trace, and the process dies there; what is left must hold."""

from __future__ import annotations

import pytest

from storage.tests.power_cuts.storage_traces import STORAGE_TRACES, storage_trace
from storage.tests.power_cuts.sweep import Bounds, sweep


@pytest.mark.parametrize("name", STORAGE_TRACES)
def test_whatever_a_crash_leaves_holds(name: str) -> None:
    sweep(storage_trace(name), Bounds())
