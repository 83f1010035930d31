"""Regular expressions from clients (ListTransactions v2, KIP-1152), matched by RE2. Kafka uses RE2/J.

The syntax is the same, and so is the guarantee: the time to match an id is linear in its length. With Python's `re` one
client could stop the broker. The cost of the pattern is bounded here by limits on its length and on RE2's compiled
program, so a character of an id takes a few microseconds at worst.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted

if TYPE_CHECKING:
    import re2

MAX_LENGTH: Final = 1_000
"""Characters of a pattern."""
MAX_INSTRUCTIONS: Final = 2_000
"""About one for each byte of what is matched, with repetitions written out; `\\pL`, a long one, has 1,200."""


@attrs.define
class IdPattern:
    """Raises KafkaError (INVALID_REGULAR_EXPRESSION) if the text is not a pattern or is too large."""

    text: str
    _compiled: re2._Regexp = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        import re2  # At first use: few brokers are ever asked, and it takes some milliseconds.

        if len(self.text) > MAX_LENGTH:
            self._refuse(f"it is longer than {MAX_LENGTH} characters")
        options = re2.Options()
        options.never_capture = True
        options.log_errors = False  # They go to the client, and not to the standard error.
        try:
            self._compiled = re2.compile(self.text, options)
        except re2.error as error:
            self._refuse(quoted(error.args[0].decode()))
        finally:
            re2.purge()  # It keeps the last 128, of some megabytes each, and ours has served when the answer is made.
        if self._compiled.programsize > MAX_INSTRUCTIONS:
            self._refuse("it is too large once its repetitions are written out")

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole name."""
        return self._compiled.fullmatch(name) is not None

    def _refuse(self, why: str) -> NoReturn:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{quoted(self.text)} is no pattern for transactional ids: {why}"
        )
