"""The error codes of an answer."""

from __future__ import annotations

from typing import Any

from kwire_protocol.wire import GeneratedMessage


def error_codes(answer: Any) -> set[int]:
    """Returns the error codes at any depth, 0 included."""
    match answer:
        case list():
            return {code for part in answer for code in error_codes(part)}
        case GeneratedMessage():
            found: set[int] = set()
            for name in answer.__slots__:
                value = getattr(answer, name)
                found |= {value} if name.endswith("error_code") else error_codes(value)
            return found
        case _:
            return set()
