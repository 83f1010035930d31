"""Refusals by brokers, as a job's errors: those it waits for, those it retries, and those it reports."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode

from kwire.client.errors import ClientError, ConnectionFailed, InvalidAddress, Refused
from kwire.client.fetching import EndNotReached
from kwire.client.producing import ProducerFenced
from kwire.pipeline.brokers import Unreachable, connect, explained, explaining, kind_of, raised_elsewhere
from kwire.pipeline.errors import Interrupted, PipelineError


class _Mine(PipelineError):
    pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionFailed("x"), Unreachable),
        (Refused("x", ErrorCode.NOT_LEADER_OR_FOLLOWER), Unreachable),
        (Refused("x", ErrorCode.MESSAGE_TOO_LARGE), PipelineError),
        (InvalidAddress("x"), PipelineError),
        (ProducerFenced("x", ErrorCode.PRODUCER_FENCED), Interrupted),
        (EndNotReached("x"), Unreachable),
        (ClientError("x"), Interrupted),
    ],
)
def test_a_job_waits_for_brokers_retries_what_may_pass_and_reports_the_rest(
    error: ClientError, kind: type[PipelineError]
) -> None:
    assert type(explained(error)) is kind


def test_an_error_that_needs_a_person_explains_how_to_continue() -> None:
    assert str(explained(Refused("too large", ErrorCode.MESSAGE_TOO_LARGE))) == (
        "too large. What was written stays; run the same command again to continue"
    )


def test_an_error_in_a_block_names_what_failed_and_what_to_do() -> None:
    message = r"^topic t cannot be looked at: gone\. Is -b right\?$"
    with pytest.raises(Unreachable, match=message), explaining("topic t cannot be looked at", "Is -b right?"):
        raise ConnectionFailed("gone")


def test_an_invalid_address_is_reported_without_a_question_about_the_broker() -> None:
    with pytest.raises(PipelineError, match=r"^--from nowhere: [^?]*$"):
        connect("nowhere", "--from")


@pytest.mark.parametrize("error", [PipelineError("x"), Unreachable("x"), Interrupted("x")])
def test_an_error_keeps_its_kind_on_its_way_between_processes(error: PipelineError) -> None:
    again = raised_elsewhere(kind_of(error), str(error))

    assert (type(again), str(again)) == (type(error), "x")


def test_a_subclass_travels_as_its_known_base() -> None:
    assert kind_of(_Mine("x")) == "PipelineError"
    assert type(raised_elsewhere("ValueError", "x")) is Interrupted
