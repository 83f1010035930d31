"""The tour's Python prompt, without a person: each line of standard input names a file, which is pasted line by line.

Its output is in FILE.out. FILE.ended has the result: 0, or 1 after an error. It is Python's own prompt: a loop or a
function ends with an empty line, so that another line of the block has to follow.
"""

from __future__ import annotations

import code
import os
import sys
from pathlib import Path
from typing import Any


class Prompt(code.InteractiveConsole):
    failed = False

    def showtraceback(self) -> None:
        self.failed = True
        super().showtraceback()

    def showsyntaxerror(self, *arguments: Any, **named: Any) -> None:
        self.failed = True
        super().showsyntaxerror(*arguments, **named)

    def paste(self, block: Path) -> bool:
        """Returns True if no line has raised an error."""
        self.failed = wants_more = False
        for line in block.read_text(encoding="utf-8").splitlines():
            wants_more = self.push(line)
            if self.failed:
                return False
        if wants_more:
            sys.stderr.write("the block ends within a statement: let a line follow the loop or the function\n")
        return not wants_more


def main() -> None:
    prompt = Prompt()
    for line in sys.stdin:
        block = Path(line.strip())
        with Path(f"{block}.out").open("wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        well = prompt.paste(block)
        sys.stdout.flush()
        Path(f"{block}.ended").write_text("0" if well else "1")


if __name__ == "__main__":
    main()
