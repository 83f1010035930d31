"""Whatever happens to the nodes of a cluster under load, nothing that was acknowledged is lost or repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

import click
import pytest

from testkit.java.java_host import JavaHost, java_host
from testkit.kills.cluster_faults.kinds import ALL, EVERYWHERE, GROWN, MORE, SHRUNK, ZOOKEEPER, Suffer, faults
from testkit.kills.cluster_faults.scenario import Faults
from testkit.kills.harness import run

SMALL: Final = {"local": EVERYWHERE, "zookeeper": {"SIGKILL": MORE["SIGKILL"], **ZOOKEEPER}}
"""Twenty in all: each kind once."""


@pytest.fixture(scope="module")
def java() -> Iterator[JavaHost]:
    with java_host() as host:
        yield host


@pytest.mark.parametrize("form", ALL)
def test_each_kind_of_fault_happens_equally_often_and_what_grows_shrinks(form: str) -> None:
    kinds = ALL[form]

    def planned_by(seed: int) -> list[str]:
        return [it.kind for it in islice(faults(Random(seed), kinds, longest_s=1.0), 3 * len(kinds))]

    planned = planned_by(1)
    assert Counter(planned) == dict.fromkeys(kinds, 3)
    assert [it for it in planned if it in (GROWN, SHRUNK)] == [GROWN, SHRUNK] * 3
    assert planned != planned_by(2)


@pytest.mark.more
@pytest.mark.parametrize("form", SMALL)
def test_nothing_acknowledged_is_lost_or_repeated_whatever_befalls_the_nodes(
    tmp_path: Path, java: JavaHost, form: str
) -> None:
    kinds: dict[str, Suffer] = dict(SMALL[form])
    scenario = Faults(form, tmp_path, java, kinds, longest_s=1.5, pause_s=0.2)
    account = run(scenario, kills=len(kinds), seed=1618)
    click.echo(account)  # which pytest shows when the test fails
    assert set(account.kills) == set(kinds)


@pytest.mark.soak
@pytest.mark.parametrize(
    "mistake",
    [
        "a leader acknowledges before anything is committed",
        "a leader commits one record too many",
        "a coordinator answers before its records are committed",
        "a follower does not cut",
    ],
)
def test_a_mistake_is_found(tmp_path: Path, java: JavaHost, mistake: str) -> None:
    kinds = {name: EVERYWHERE[name] for name in ("cut off and killed", "SIGSTOP")}
    with pytest.raises(AssertionError, match="seed 3, lap 0"):
        run(Faults("local", tmp_path, java, kinds, mistake=mistake), kills=20, seed=3)
