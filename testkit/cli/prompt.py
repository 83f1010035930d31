"""Commands of `kwire` that run in this process, and the transcript of what they show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from shlex import join
from typing import Any, Generic, Protocol, TypeVar

import attrs
import pytest
from click.testing import CliRunner, Result

from kwire.cli import main
from kwire.cli.columns import printable
from kwire.cli.reaching import Reach
from kwire.client.cluster import Cluster
from testkit.cli.json_page import check_keys, page


class HasCluster(Protocol):
    def cluster(self) -> Cluster: ...


Brokers = TypeVar("Brokers", bound=HasCluster)

_ENVIRONMENT = {"COLUMNS": "120", "FORCE_COLOR": None}
"""Tables are as wide everywhere, and no terminal is suspected."""


@attrs.define(eq=False)
class Prompt:
    """Runs commands that begin with `words`. The transcript leaves out `more`, which is added to each."""

    words: Sequence[str] = ()
    more: Sequence[str] = ()
    renamed: Mapping[str, str] = attrs.field(factory=dict)
    """Text that differs from run to run, and what the transcript has instead."""
    transcript: str = ""
    """Each command with its standard output, its standard error behind `2>`, and its exit code unless that is 0."""
    stderr: str = ""
    """The standard error of the last command."""

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> Result:
        command = [*self.words, *arguments]
        runner = CliRunner(env=_ENVIRONMENT)
        result = runner.invoke(main, [*command, *self.more], input=stdin, prog_name="kwire")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == code, result.output
        assert all(letter.isprintable() or letter == "\n" for letter in result.output), "names control the terminal"
        shown = f"$ kwire {printable(join(command))}\n{result.stdout}"
        shown += "".join(f"2> {line}\n" for line in result.stderr.splitlines())
        shown += f"exit code {code}\n" if code else ""
        for text, instead in self.renamed.items():
            shown = shown.replace(text, instead)
        self.transcript += f"{shown}\n"
        self.stderr = result.stderr
        return result

    def comment(self, text: str) -> None:
        """Adds a line to the transcript, about what the next commands find."""
        self.transcript += f"# {text}\n"

    def json(self, *arguments: str, code: int = 0) -> list[Any]:
        """Returns the objects that the command prints with --json. Their keys are checked; the transcript stays."""
        transcript = self.transcript
        objects = [json.loads(line) for line in self(*arguments, "--json", code=code).stdout.splitlines()]
        self.transcript = transcript
        words = [*self.words, *arguments]
        check_keys(next(it for it in (" ".join(words[:2]), words[0]) if it in page()), objects)
        return objects


@attrs.define(eq=False)
class ClusterClient(Prompt, Generic[Brokers]):
    """Runs commands that have these brokers for a cluster."""

    brokers: Brokers = attrs.field(kw_only=True)

    @classmethod
    def of(cls, command: str, brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> ClusterClient[Brokers]:
        def connect(reach: Reach) -> Cluster:
            assert (reach.bootstrap, reach.timeout_s) == ("127.0.0.1:9092", 30)
            return brokers.cluster()

        monkeypatch.setattr(Reach, "cluster", connect)
        return cls([command], brokers=brokers)


def of_type(name: str, objects: Iterable[Any]) -> list[Any]:
    return [it for it in objects if it["type"] == name]
