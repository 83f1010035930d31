"""Text that is compared with a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.suite.snapshots import Snapshot


def test_the_same_text_passes_and_another_one_is_shown_line_by_line(tmp_path: Path) -> None:
    Snapshot(tmp_path, is_updated=True)("a/b", "one\ntwo\n")
    assert (tmp_path / "a" / "b.txt").read_text() == "one\ntwo\n"
    compared = Snapshot(tmp_path, is_updated=False)
    compared("a/b", "one\ntwo\n")
    with pytest.raises(pytest.fail.Exception, match=r"(?s)b\.txt has another text.*\n-two\n\+three$") as failed:
        compared("a/b", "one\nthree\n")
    assert "--update-snapshots" in str(failed.value)
    with pytest.raises(pytest.fail.Exception, match="the last line ends in another way"):
        compared("a/b", "one\ntwo")
    assert (tmp_path / "a" / "b.txt").read_text() == "one\ntwo\n"


def test_a_missing_file_is_another_text(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"\+one$"):
        Snapshot(tmp_path, is_updated=False)("new", "one\n")
    assert not any(tmp_path.iterdir())
