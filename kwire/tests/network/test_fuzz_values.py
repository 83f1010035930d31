"""Any message that the schemas allow, and any bytes behind a right header, to a broker in this process.

Hypothesis makes them, so that what breaks the broker is shrunk to its smallest form.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kwire_protocol.messages import APIS as MESSAGES

from devtools.suite.tiers import examples
from kwire.handlers.apis import APIS
from kwire.testing import Broker
from testkit.messages.catalogue import Entry
from testkit.messages.values import values
from testkit.raw.client import ConnectionClosed, RawClient, decoded_reply, framed, request_frame
from testkit.raw.fuzz.requests import served_entries

ENTRIES = served_entries()
WAITING = {"JoinGroupRequest", "SyncGroupRequest"}
"""They may wait for other members, and there are none."""
PATIENCE_S = 20.0
BRIEF_PATIENCE_S = 0.05


class Bugs(logging.Handler):
    """Collects what the broker logs as errors, in whichever thread."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(logging.Formatter().format(record))


@pytest.fixture(scope="module")
def bugs() -> Iterator[Bugs]:
    handler = Bugs()
    logger = logging.getLogger("kwire")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker(settings={"unstable.api.versions.enable": "true"}) as broker:
        yield broker.address


def entry_and_version() -> st.SearchStrategy[tuple[Entry, int]]:
    return st.sampled_from(ENTRIES).flatmap(
        lambda entry: st.tuples(st.just(entry), st.sampled_from(list(APIS[entry.message.api_key or 0].versions)))
    )


def message_of(choice: tuple[Entry, int]) -> st.SearchStrategy[tuple[Entry, int, Any]]:
    entry, version = choice
    return st.tuples(st.just(entry), st.just(version), values(entry, version))


def exchange(address: str, frame: bytes, entry: Entry, version: int, bugs: Bugs) -> None:
    """Sends one frame; whatever comes back must be a message of its version, and another client must be served."""
    with RawClient(address, timeout_s=PATIENCE_S) as client, suppress(ConnectionClosed):
        client.send(frame)
        client.end()
        if entry.name in WAITING:
            client.sock.settimeout(BRIEF_PATIENCE_S)  # for the answer only: a busy broker may be slow to take all of it
        with suppress(*[TimeoutError] if entry.name in WAITING else []):
            decoded_reply(client.read_frame(), entry.message.api_key or 0, version)
    assert not bugs.found, bugs.found.pop()


@given(choice=entry_and_version().flatmap(message_of))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
def test_every_message_that_can_be_is_answered_or_cut_off(
    address: str, bugs: Bugs, choice: tuple[Entry, int, Any]
) -> None:
    entry, version, message = choice
    exchange(address, request_frame(message, version), entry, version, bugs)


@given(choice=entry_and_version(), body=st.binary(max_size=200), client_id=st.none() | st.text(max_size=20))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
def test_any_bytes_behind_a_right_header_are_answered_or_cut_off(
    address: str, bugs: Bugs, choice: tuple[Entry, int], body: bytes, client_id: str | None
) -> None:
    entry, version = choice
    header = request_header(entry, version, client_id)
    exchange(address, framed(header + body), entry, version, bugs)


def request_header(entry: Entry, version: int, client_id: str | None) -> bytes:
    empty = request_frame(entry.cls(), version, client_id=client_id)
    size_of_fixed = 4 + 8 + 2 + len((client_id or "").encode())
    tags = b"\0" if MESSAGES[entry.message.api_key or 0].is_flexible(version) else b""
    return empty[4:size_of_fixed] + tags
