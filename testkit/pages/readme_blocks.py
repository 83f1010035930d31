"""The blocks of code in README.md."""

from __future__ import annotations

from devtools.markdown import Block, fenced_blocks
from devtools.places import REPOSITORY

README = REPOSITORY / "README.md"


PRINTED_ADDRESS = "127.0.0.1:9092"


def block_with(word: str) -> Block:
    (found,) = (block for block in fenced_blocks(README) if word in block.text)
    return found
