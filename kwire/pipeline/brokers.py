"""A job's connections to brokers, and what a broker's error means for the job: wait, retry, or end with the error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from kwire_protocol.errors import ErrorCode

from kwire.client.cluster import Cluster
from kwire.client.errors import ClientError, InvalidAddress, Refused
from kwire.client.fetching import EndNotReached
from kwire.pipeline.errors import Interrupted, PipelineError

TIMEOUT_S: Final = 30.0

_FOR_GOOD: Final = {
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
"""Errors that a retry does not fix: a configuration, a permission or the records have to change."""
_CONTINUE: Final = "What was written stays; run the same command again to continue"


class Unreachable(PipelineError):
    """The brokers do not answer: a job that runs already waits for them."""


def connect(
    bootstrap: str,
    flag: str = "--bootstrap-server",
    hint: str = "Is it right, and the broker up?",
    *,
    timeout_s: float = TIMEOUT_S,
) -> Cluster:
    """Connects to a cluster. Raises PipelineError, which names the flag of the address."""
    with explaining(f"{flag} {bootstrap}", hint):
        return Cluster(bootstrap, timeout_s=timeout_s, client_id="kwire-pipeline")


@contextmanager
def explaining(doing: str = "", hint: str = "") -> Iterator[None]:
    """Converts a ClientError of the block by `explained`."""
    try:
        yield
    except ClientError as error:
        raise explained(error, doing, hint) from None


def explained(error: ClientError, doing: str = "", hint: str = "") -> PipelineError:
    """A client's error as a job's: Unreachable, Interrupted, or a PipelineError that the user has to fix.

    doing: what failed; the message begins with it. hint: what to do; the message ends with it.
    """
    said = f"{doing}: {error.message}" if doing else error.message
    if isinstance(error, InvalidAddress):
        return PipelineError(said)
    text = f"{said}. {hint}" if hint else said
    # If the end is not reached, a transaction is open; its time-out ends it, after a minute at the latest.
    if error.may_pass or isinstance(error, EndNotReached):
        return Unreachable(text)
    if isinstance(error, Refused) and error.code in _FOR_GOOD:
        return PipelineError(f"{said}. {hint or _CONTINUE}")
    return Interrupted(text)


def kind_of(error: PipelineError) -> str:
    """The name by which `raised_elsewhere` makes the error again in another process."""
    return next(name for name, kind in _KINDS.items() if isinstance(error, kind))


def raised_elsewhere(kind: str, message: str) -> PipelineError:
    """An error of one of Spark's tasks, from the name of its type. Interrupted for an unknown name."""
    return _KINDS.get(kind, Interrupted)(message)


_KINDS: Final[Mapping[str, type[PipelineError]]] = {it.__name__: it for it in (Unreachable, Interrupted, PipelineError)}
