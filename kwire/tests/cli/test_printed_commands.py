"""Every kwire command in the documentation, and each example of --help, is one that kwire has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from devtools.markdown import fenced_blocks
from devtools.places import REPOSITORY
from kwire.cli import main
from kwire.pipeline.session import PACKAGES
from testkit.cli.every_command import every_command

PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")])

# As it stands at a prompt, in a page or in an epilog; or behind the program that spark-submit runs.
_COMMAND = re.compile(r"^ *(?:\$ )?(?:spark-submit .* job\.py|kwire) ([a-z].*)$", re.MULTILINE)
_IN_A_SENTENCE = re.compile(r"`kwire ([a-z][^`]*)`")
_CONTINUED = re.compile(r"\\\n\s*")
_EXPLAINED_BEHIND = re.compile(r"(?<=\S) {3,}.*")


def _printed(text: str) -> list[str]:
    """Returns the whole commands: without the word kwire, and without comments."""
    return [_EXPLAINED_BEHIND.sub("", found) for found in _COMMAND.findall(_CONTINUED.sub(" ", text))]


def _blocks(page: Path) -> Iterator[str]:
    """Yields the fenced blocks, and the lines indented by four spaces."""
    yield from (block.text for block in fenced_blocks(page))
    yield "\n".join(line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("    "))


def _words(command: str) -> list[str]:
    """Splits as a shell does, up to the first > or | or &."""
    reader = shlex.shlex(command, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    words = list(reader)
    ends = [place for place, word in enumerate(words) if set(word) <= set("<>|&;")]
    return words[: ends[0]] if ends else words


def check(words: list[str], *, whole: bool) -> None:
    """Raises UsageError where kwire would, as far as that is seen without looking at a disk.

    What is not whole, since it stands in a sentence, may lack what is required.
    """
    command: click.Command = main
    context = click.Context(main, info_name="kwire")
    while isinstance(command, click.Group):
        if not words:
            return
        found = command.get_command(context, words[0])
        if found is None:
            raise click.UsageError(f"no such command: {words[0]}", context)
        command, words = found, words[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    given, left_over, _ = command.make_parser(context).parse_args(list(words))
    if left_over:
        raise click.UsageError(f"more than it takes: {left_over}", context)
    for parameter in command.params:
        value = given.get(str(parameter.name))
        if isinstance(parameter.type, click.Choice) and isinstance(value, str):
            parameter.type.convert(value, parameter, context)
        if whole and parameter.required and not value and not given.get("file"):  # a file may have it
            raise click.MissingParameter(ctx=context, param=parameter)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_shows_is_a_command_of_kwire(page: Path) -> None:
    for command in (it for block in _blocks(page) for it in _printed(block)):
        check(_words(command), whole=True)
    for command in _IN_A_SENTENCE.findall(page.read_text(encoding="utf-8")):
        check(_words(command.replace("\n", " ")), whole=False)


def test_what_help_shows_is_a_command_of_kwire() -> None:
    examples = [example for _, command in every_command() for example in _printed(command.epilog or "")]
    assert len(examples) > 20
    for example in examples:
        check(_words(example), whole=True)


def test_the_pages_that_show_most_are_looked_at() -> None:
    found = {page.name: sum(len(_printed(block)) for block in _blocks(page)) for page in PAGES}
    assert found["README.md"] >= 2
    assert found["tools.md"] >= 7
    assert found["configuration.md"] >= 1
    assert found["pipeline.md"] >= 5
    assert found["tour.md"] >= 10


@pytest.mark.parametrize(
    "wrong",
    [
        "pipeline tabel orders --to warehouse",
        "pipeline table orders --too warehouse",
        "pipeline table orders --value json",
        "pipeline table orders --to warehouse --value jason",
        "pipeline verify orders clicks --to warehouse",
        "query orders --to",
    ],
)
def test_a_command_that_kwire_would_refuse_is_found(wrong: str) -> None:
    (command,) = _printed(f"    kwire {wrong} > out 2>&1 &")
    with pytest.raises(click.UsageError):
        check(_words(command), whole=True)


def test_what_the_pipelines_page_has_in_fences_is_run_with_the_tour() -> None:
    """spark_tests/tour runs that page as it is printed."""
    run = {block.text for block in fenced_blocks(REPOSITORY / "docs" / "tour.md")}
    shown = [it for it in fenced_blocks(REPOSITORY / "docs" / "pipeline.md") if it.language in ("sh", "python")]
    assert len(shown) >= 5
    for block in shown:
        assert block.text in run, f"docs/tour.md has not got the block at line {block.line} of docs/pipeline.md"


def test_jars_that_are_printed_are_those_that_jobs_require() -> None:
    for page in ("tour.md", "pipeline.md"):
        text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
        assert set(PACKAGES) == set(re.findall(r"\b[a-z]+(?:\.\w+)+:[\w.-]+:\d[\w.]*\d", text))
