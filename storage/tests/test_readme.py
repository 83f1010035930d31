"""The code in storage/README.md works as the page describes."""

from pathlib import Path

import pytest

from devtools.markdown import Block, fenced_blocks
from devtools.places import REPOSITORY

PAGE = REPOSITORY / "storage" / "README.md"
BLOCKS = [block for block in fenced_blocks(PAGE) if block.language == "python"]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"line {block.line}")
def test_the_code_of_the_page_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block.text, str(PAGE), "exec"), {})
    assert (tmp_path / "data" / "orders-0" / "00000000000000000000.log").stat().st_size > 0


def test_the_page_names_every_module_of_a_log() -> None:
    modules = {path.name for path in (PAGE.parent / "kwire_storage" / "log").glob("*.py")} - {"__init__.py"}
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in sorted(modules) if f"`{name}`" not in page] == []
