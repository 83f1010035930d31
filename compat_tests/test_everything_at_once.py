"""Everything at once, for a short time; `make soak` does it for an hour, and with deliberate mistakes.

By hand: python -m testkit.everything_at_once --seconds 60 --seed 7
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testkit.basics.waiting import eventually
from testkit.everything_at_once.races import RACES
from testkit.everything_at_once.run import Account, Conductor, folder_of_a_run, run
from testkit.everything_at_once.vanishing import Acknowledged
from testkit.everything_at_once.worker import Complaint, Message, Reporter, Work, Worker
from testkit.java.java_host import JavaHost
from testkit.kills.sigkill.ledger import Mark
from testkit.mutants.processes import parameters, parameters_of
from testkit.servers.brokers import IS_KAFKA

SECONDS, SEED = 10.0, 643
"""Of load, in which by this seed each kind of trouble comes; to judge takes as long again."""

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="its settings, its log and its files are kwire's")


@pytest.mark.more
@pytest.mark.timeout(300)
def test_everything_at_once_loses_nothing_and_leaves_nothing(java: JavaHost) -> None:
    account = run(SECONDS, SEED, java=java)
    for skipped in account.skipped:
        print(f"MISSING TEST: {skipped}")  # noqa: T201 - shown where the test fails
    assert account.complaints == []
    assert account.records > 100 * SECONDS
    assert account.counts["SIGKILLs of the broker"] > 0
    assert account.counts["answers with metrics"] > SECONDS


@pytest.mark.parametrize("name", RACES)
def test_each_mistake_has_a_place_in_the_broker(name: str) -> None:
    for target, function in RACES[name].targets.items():
        assert parameters_of(target) == parameters(function)


def test_a_record_that_is_acknowledged_in_the_place_of_another_is_found_at_once(tmp_path: Path, java: JavaHost) -> None:
    account = Account(SEED, SECONDS)
    conductor = Conductor(account, tmp_path, [], None, java, lambda what, passed_s: None)
    for sequence in range(2):
        conductor._hear(Acknowledged(("topic", 0), 5, Mark(1, sequence)))
    assert len(account.complaints) == 1
    assert account.found_after_s is not None


def _end_at_once(reporter: Reporter) -> Work:
    raise LookupError("the reason")


def test_a_client_that_ended_is_reported_and_may_be_killed_twice() -> None:
    messages: list[Message] = []
    worker = Worker("client", _end_at_once, messages.append)
    eventually(lambda: not worker.is_alive, "its end")
    worker.kill()
    worker.kill()
    (complaint,) = messages
    assert isinstance(complaint, Complaint)
    assert "LookupError: the reason" in complaint.text


def test_the_folder_of_a_run_goes_though_a_cleaner_still_makes_a_file_there(monkeypatch: pytest.MonkeyPatch) -> None:
    to_make, rmdir = [".lock"], os.rmdir

    def make_a_file_and_remove(path: str, *, dir_fd: int | None = None) -> None:
        if to_make:
            (root / "second" / to_make.pop()).touch()
        rmdir(path, dir_fd=dir_fd)

    with folder_of_a_run() as root:
        (root / "second").mkdir()
        monkeypatch.setattr(os, "rmdir", make_a_file_and_remove)
    assert not to_make
    assert not root.exists()
