"""The catalogue of all messages, with their names in the schemas and in Python."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import attrs
import pytest
from codegen import emit_module, schema
from codegen.schema import Field, Message, Struct

from devtools.suite import cases


@attrs.frozen
class Entry:
    """One message with the classes of its structs."""

    message: Message
    module: str
    classes: dict[str, Any]  # by Kafka's name of the struct, the message itself included

    @property
    def name(self) -> str:
        return self.message.name

    @property
    def cls(self) -> Any:
        return self.classes[self.name]

    def fields(self, struct: str) -> tuple[Field, ...]:
        return self.message.fields if struct == self.name else self.structs[struct].fields

    @property
    def structs(self) -> dict[str, Struct]:
        return {each.name: each for each in self.message.structs}

    def fields_by_version(self) -> Iterator[tuple[int, str, Field]]:
        """(version, struct, field) for each version, its structs, and their fields, also those that it lacks."""
        for version in self.message.versions:
            for struct in (self.name, *(it.name for it in self.message.structs if version in it.versions)):
                for field in self.fields(struct):
                    yield version, struct, field


def _entries(module_name: str, messages: Sequence[Message]) -> list[Entry]:
    names = emit_module.class_names(messages)
    module = importlib.import_module(module_name)
    return [
        Entry(
            message,
            module_name,
            {message.name: getattr(module, message.name)}
            | {each.name: getattr(module, names[message.name, each.name]) for each in message.structs},
        )
        for message in messages
    ]


def all_entries() -> list[Entry]:
    entries = []
    for name, pair in emit_module.apis(schema.load_messages()).items():
        entries += _entries(f"kwire_protocol.messages.{schema.snake_case(name)}", pair)
    for name, messages in schema.load_internal().items():
        entries += _entries(f"kwire_protocol.internal.{name}", messages)
    return entries


ENTRIES = all_entries()


def messages(which: Callable[[Entry], Any] = bool) -> pytest.MarkDecorator:
    """Makes a test for each message, which goes through its versions: a test for each of the 712 proves nothing more.

    `which` leaves out messages of which the test would prove nothing.
    """
    return pytest.mark.parametrize("entry", [it for it in ENTRIES if which(it)], ids=lambda entry: entry.name)


def naming(entry: Entry, version: int, field: Field | None = None) -> AbstractContextManager[None]:
    """A failure inside names the message, its version and the field."""
    return cases.naming(f"{entry.name} v{version}" + (f", {field.attribute}" if field else ""))
