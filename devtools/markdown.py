"""The blocks of code in a Markdown page, so that tests run what is printed."""

from __future__ import annotations

from pathlib import Path

import attrs


@attrs.frozen
class Block:
    """`language` is what stands behind the fence, "" for none; `line` is where the text begins, counted from 1."""

    language: str
    text: str
    line: int


def fenced_blocks(page: Path) -> list[Block]:
    """All that stand between ``` and ```, in their order."""
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
