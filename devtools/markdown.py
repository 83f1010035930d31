"""Reads the code blocks of a Markdown page, so that tests can run them."""

from __future__ import annotations

from pathlib import Path

import attrs


@attrs.frozen
class Block:
    """`language` is the word after the fence, "" for none; `line` is the first line of the text, counted from 1."""

    language: str
    text: str
    line: int


def fenced_blocks(page: Path) -> list[Block]:
    """All blocks between ``` fences, in order."""
    found: list[Block] = []
    language, first, lines = "", 0, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
        elif first:
            found.append(Block(language, "\n".join(lines) + "\n", first))
            first = 0
        else:
            language, first, lines = line.removeprefix("```").strip(), number + 1, []
    return found
