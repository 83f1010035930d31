r"""The text of a server.properties file: Java's properties syntax.

A line is `key=value`, `key: value` or `key value`. `#` and `!` start a comment line. A line that ends in an odd number
of backslashes continues on the next line, whose leading blanks are dropped. In keys and values, `\t \n \r \f` and
`\uXXXX` mean the same as in Java, and a backslash before any other character stands for that character. If a key is
repeated, the last line wins. Trailing blanks belong to the value; configuration parsing trims them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kwire.config.definition import ConfigError

_BLANK: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX4: Final = re.compile(r"[0-9a-fA-F]{4}")
_SURROGATES: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def parse_properties(text: str) -> dict[str, str]:
    r"""Returns the properties in `text`. Raises ConfigError for a malformed \u escape."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key_end, value_start = _split(line)
        found[_unescape(line[:key_end])] = _unescape(line[value_start:])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    continuing = False
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANK)
        if not continuing and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continuing = True
            continue
        yield pending + line
        pending = ""
        continuing = False
    if continuing and pending:
        yield pending


def _split(line: str) -> tuple[int, int]:
    """Returns the index at which the key ends, and the one at which the value starts."""
    position = 0
    while position < len(line) and line[position] not in _BLANK + "=:":
        position += 2 if line[position] == "\\" else 1
    key_end = min(position, len(line))
    value_start = key_end
    while value_start < len(line) and line[value_start] in _BLANK:
        value_start += 1
    if value_start < len(line) and line[value_start] in "=:":
        value_start += 1
        while value_start < len(line) and line[value_start] in _BLANK:
            value_start += 1
    return key_end, value_start


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            if char != "\\":
                out.append(char)
            continue
        char = text[position]
        position += 1
        if char == "u":
            code = _HEX4.match(text, position)
            if code is None:
                wrong = text[position - 2 : position + 4]
                raise ConfigError(f"invalid escape {wrong!r}: \\u needs four hexadecimal digits")
            out.append(chr(int(code[0], 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # Java's strings are UTF-16: a pair of escapes may stand for one character.
    return _SURROGATES.sub(lambda pair: pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), "".join(out))
