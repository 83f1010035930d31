"""Text of error messages."""

from __future__ import annotations

import re


def unquoted(message: str | None) -> str:
    """Names are quoted in kwire's messages, and not in Apache Kafka's."""
    return re.sub(r"['`\"]", "", message or "")
