"""Regular expressions from clients, matched by RE2: ListTransactions v2 (KIP-1152) and subscriptions (KIP-848).

Kafka uses RE2/J. The syntax is the same, and so is the guarantee: the time to match a name is linear in its length.
With Python's `re` one client could stop the broker. The cost of a pattern is bounded here by limits on its length and
on RE2's compiled program, so a character of a name takes a few microseconds at worst.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
from kwire_protocol.kafka_error import quoted

if TYPE_CHECKING:
    import re2

MAX_LENGTH: Final = 1_000
"""The maximum number of characters of a pattern."""
MAX_INSTRUCTIONS: Final = 2_000
"""The maximum size of RE2's program: about one instruction for each byte that the pattern matches, with repetitions
expanded. `\\pL`, a long one, has 1,200."""


class InvalidPattern(Exception):
    """The text is not a pattern, or the pattern is too large; the message has the reason."""


@attrs.define
class Pattern:
    """A compiled pattern. Its constructor raises InvalidPattern."""

    text: str
    _compiled: re2._Regexp = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        import re2  # At first use: few brokers need it, and the import takes some milliseconds.

        if len(self.text) > MAX_LENGTH:
            raise InvalidPattern(f"it is longer than {MAX_LENGTH} characters")
        options = re2.Options()
        options.never_capture = True
        options.log_errors = False  # They are sent to the client, and not to the standard error.
        try:
            self._compiled = re2.compile(self.text, options)
        except re2.error as error:
            raise InvalidPattern(quoted(error.args[0].decode())) from error
        finally:
            re2.purge()  # Its cache keeps 128 patterns of some megabytes each, and each is used for one response only.
        if self._compiled.programsize > MAX_INSTRUCTIONS:
            raise InvalidPattern("it is too large once its repetitions are written out")

    def matches(self, name: str) -> bool:
        """Returns True if the pattern matches the whole name."""
        return self._compiled.fullmatch(name) is not None
