"""The pytest plugin that shares the tests out among processes, where there are several (`-n`, pytest-xdist).

A process takes one unit after the other (`groups.py` defines the units), and the groups begin in the order of their
table, so that the long ones do not begin last.
"""

from __future__ import annotations

import os

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.scheduler.protocol import Scheduling

from devtools.suite.groups import group_of, place_in_order, unit_of

MOST_PROCESSES = 8
"""The maximum number of processes: each collects all tests first, and the longest group does not get shorter."""


class _UnitScheduling(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are cores: tests that wait for a broker or a client leave their core to others."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores + 2, MOST_PROCESSES)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    config.option.loadscopereorder = False  # it would begin with the unit of most tests, not with the longest
    return _UnitScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    try:
        for item in items:
            group_of(item.nodeid)
    except LookupError as error:
        raise pytest.UsageError(str(error)) from None
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_in_order(item.nodeid))
