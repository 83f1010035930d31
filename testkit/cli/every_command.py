"""All commands of `kwire`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kwire.cli import main


def every_command(command: click.Command = main, *words: str) -> Iterator[tuple[str, click.Command]]:
    """All commands and groups of commands, each with the words behind kwire that it is called by."""
    yield " ".join(words), command
    if isinstance(command, click.Group):
        for name, it in command.commands.items():
            yield from every_command(it, *words, name)
