"""Changes that are made in memory first, and undone if they cannot be recorded.

A heartbeat changes a member, then the group's epoch, the target assignment and the member's own: each depends on the
ones before. So a change applies at once, and the draft keeps its record and how to undo it. All records go into one
append, and if that fails the group has its old state again. Nothing else may read the group in between, which holds
because an append is done before anything else enters the shard (see `effects.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol, Self, TypeVar

from kwire_protocol.errors import ErrorCode

from kwire.coordinators.effects import KeyedRecord, Step, Token, response_error


class Change(Protocol):
    """The new value of one key of the log. Its group returns the inverse change when it applies it."""

    def record(self) -> KeyedRecord: ...


C = TypeVar("C", bound=Change)


class Changeable(Protocol[C]):
    """A group that `apply` changes; it returns the change that undoes it."""

    def apply(self, change: C, /) -> C: ...


class Draft:
    """Use it once: make changes, then `append`, `answer` or `undo`."""

    __slots__ = ("_then", "_undo", "records")

    def __init__(self) -> None:
        self.records: list[KeyedRecord] = []
        self._undo: list[Callable[[], object]] = []
        self._then: list[Callable[[Step], None]] = []

    def change(self, group: Changeable[C], change: C) -> Self:
        self.did(change.record(), partial(group.apply, group.apply(change)))
        return self

    def did(self, record: KeyedRecord | None, undo: Callable[[], object]) -> None:
        """Adds a change that was made and that `undo` reverts; `record` is None if it has no record."""
        if record is not None:
            self.records.append(record)
        self._undo.append(undo)

    def then(self, action: Callable[[Step], None]) -> None:
        """Calls `action` once the records are appended."""
        self._then.append(action)

    def say(self, log: logging.Logger, message: str, *args: object) -> None:
        """Logs the message once the records are appended, so that failed attempts do not repeat it."""
        self.then(lambda _: log.info(message, *args))

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()

    def append(self, step: Step, failed: Callable[[Step, ErrorCode], None] | None = None) -> None:
        """Appends the records; if that fails, undoes all changes and calls `failed`. Never fails without records."""
        if not self.records:
            self._done(step)
            return

        def appended(later: Step, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._done(later)
                return
            self.undo()
            if failed is not None:
                failed(later, error)

        step.append(self.records, appended)

    def answer(self, step: Step, token: Token, response: object, failed: Callable[[ErrorCode], object]) -> None:
        """Calls `append`, and replies first: with `response`, or with what `failed` returns for the client's error."""
        if self.records:
            self._then.insert(0, lambda later: later.reply(token, response))
            self.append(step, lambda later, error: later.reply(token, failed(response_error(error))))
        else:
            step.reply(token, response)
            self._done(step)

    def _done(self, step: Step) -> None:
        for action in self._then:
            action(step)
