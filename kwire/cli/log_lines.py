"""The format of the broker's log lines.

Client-supplied text is quoted where it is logged. This is the second line of defence, and it also bounds the length of
a line: a client id, a group or a reason may have 32,767 bytes.
"""

from __future__ import annotations

import logging

MAX_LINE_LENGTH = 600
AUDIT = "kwire.audit"
"""The logger of `kwire.security.audit`."""


class LineFormatter(logging.Formatter):
    """One printable line of bounded length per record; a traceback follows in full."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        if record.name == AUDIT and record.message.startswith("{"):
            return record.message  # JSON, which has the time, and is bounded and escaped
        line = super().formatMessage(record)
        if not line.isprintable():
            line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line[:MAX_LINE_LENGTH])
        return line if len(line) <= MAX_LINE_LENGTH else line[: MAX_LINE_LENGTH - 3] + "..."
