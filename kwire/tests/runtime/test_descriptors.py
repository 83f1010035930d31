"""The division of the process's descriptors."""

from __future__ import annotations

import resource

import pytest

from kwire.config.server import load_config
from kwire.runtime import descriptors
from kwire.runtime.descriptors import LEAST_CONNECTIONS, OTHERS, Budget


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits in force, the last entry being the current one; new limits are appended."""
    in_force = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _which: in_force[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limit: in_force.append(limit))
    return in_force


def test_the_limit_is_raised_as_far_as_it_may_be(limits: list[tuple[int, int]]) -> None:
    descriptors.raise_limit()
    assert limits[-1] == (4096, 4096)
    descriptors.raise_limit()
    assert len(limits) == 2


def test_where_there_is_no_limit_one_is_chosen_that_the_system_grants(limits: list[tuple[int, int]]) -> None:
    limits.append((1024, resource.RLIM_INFINITY))
    descriptors.raise_limit()
    assert limits[-1] == (1 << 20, resource.RLIM_INFINITY)


def test_a_system_that_refuses_to_raise_it_is_no_obstacle(
    limits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_which: int, _limit: tuple[int, int]) -> None:
        raise PermissionError(1, "not allowed")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    descriptors.raise_limit()
    assert limits == [(1024, 4096)]


def test_segments_have_half_of_what_is_left_and_connections_the_other(limits: list[tuple[int, int]]) -> None:
    limits.append((1024, 1024))
    budget = Budget.of(load_config())
    assert (budget.open_files().max_files, budget.connections()) == (480, 480)


def test_the_other_brokers_and_more_log_dirs_come_before_connections(limits: list[tuple[int, int]]) -> None:
    limits.append((1024, 1024))
    assert Budget.of(load_config()).connections(other_brokers=2, fetchers=3) == 480 - 2 * 8
    assert Budget.of(load_config(data_dirs=["a", "b", "c"])).others == OTHERS + 4


def test_however_few_there_are_a_file_and_some_connections_are_open(limits: list[tuple[int, int]]) -> None:
    limits.append((2, 2))
    budget = Budget.of(load_config())
    assert (budget.files, budget.connections(100)) == (1, LEAST_CONNECTIONS)


def test_of_a_small_limit_half_is_for_the_others(limits: list[tuple[int, int]]) -> None:
    limits.append((64, 64))
    assert Budget.of(load_config()) == Budget(limit=64, files=16, others=32)


def test_the_configuration_wins_and_connections_have_what_it_leaves(limits: list[tuple[int, int]]) -> None:
    limits.append((1024, 1024))
    budget = Budget.of(load_config(settings=["kwire.log.max.open.files=77"]))
    assert (budget.files, budget.connections()) == (77, 1024 - OTHERS - 77)
