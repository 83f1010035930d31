"""Small pages: the blocks that end a run, and those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.pages.__main__ import BlockFailed, run_page

_WELL = """\
```sh
what=tea
sleep 60 &
```
```python
def brew(what):
    return f"a cup of {what}"


print(brew("coffee"))
```
```text
a ... of coffee
```
```sh
echo "$what" > cup
```
"""


def _page(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


def test_blocks_share_a_shell_and_a_prompt_and_a_folder(tmp_path: Path) -> None:
    run_page(tmp_path, _page(tmp_path, _WELL))
    assert (tmp_path / "cup").read_text() == "tea\n"


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("```sh\nfalse\ntrue\n```", "failed"),
        ("```sh\nexit 3\n```", "failed"),
        ("```sh\nno-such-command\n```", "no-such-command"),
        ("```python\n1 / 0\n2\n```", "ZeroDivisionError"),
        ("```python\nif 1:\n    2\n3\n```", "SyntaxError"),
        ("```python\nfor it in range(3):\n    it\n```", "within a statement"),
        ("```python\nexit()\n```", "failed"),
        ("```sh\necho one\n```\n```text\ntwo\n```", "did not print 'two'"),
        ("```sh\necho b a\n```\n```text\na ... b\n```", "did not print"),
    ],
)
def test_a_block_that_does_not_do_what_is_printed_ends_the_page(tmp_path: Path, block: str, said: str) -> None:
    page = _page(tmp_path, f"{block}\n```sh\ntouch behind\n```\n")
    with pytest.raises(BlockFailed, match=said) as told:
        run_page(tmp_path, page)
    assert str(told.value).startswith("page.md, line ")
    assert not (tmp_path / "behind").exists()
