"""A job and its brokers, killed once each; `make soak-jobs` kills 200 times."""

from __future__ import annotations

import pytest

from testkit.kills.harness import run
from testkit.kills.jobs import scene


@pytest.mark.soak  # each start of the job takes as much CPU as forty of its tests
@pytest.mark.timeout(600)  # two or three Java processes, one after the other, beside all other tests
def test_killed_jobs_and_brokers_lose_and_double_nothing() -> None:
    with scene() as jobs:
        account = run(jobs, kills=3, seed=16)
    assert account.kills.total() == 3
    assert account.events > 0
    assert account.polls > 0
