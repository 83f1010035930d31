"""The layout of a struct's fields on the wire in each version."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

import attrs

from codegen.schema import Field, Message, Struct, Versions

FIXED_WIDTHS = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8}
FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


@attrs.frozen
class Branch:
    """Lines that hold for a range of versions."""

    versions: Versions
    lines: tuple[str, ...]


def is_fixed(field: Field, fixed: Container[str] = FIXED_WIDTHS) -> bool:
    return field.tag is None and not field.is_array and field.element in fixed


def runs(fields: Iterable[Field], fixed: Container[str] = FIXED_WIDTHS) -> list[tuple[Field, ...]]:
    """Groups fields of fixed width that follow each other; others stand alone. Tagged fields are left out."""
    groups: list[list[Field]] = []
    for field in fields:
        if field.tag is not None:
            continue
        if groups and is_fixed(field, fixed) and is_fixed(groups[-1][-1], fixed):
            groups[-1].append(field)
        else:
            groups.append([field])
    return [tuple(group) for group in groups]


def tagged(fields: Iterable[Field]) -> list[Field]:
    found = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
    assert [field.tag for field in found] == list(range(len(found))), "tags are numbered from 0"
    return found


def split(versions: Versions, lines_of: Callable[[int], Sequence[str]]) -> list[Branch]:
    """The ranges of versions for which `lines_of` returns the same lines, newest first."""
    branches: list[Branch] = []
    for version in reversed(list(versions)):
        lines = tuple(lines_of(version))
        if branches and branches[-1].lines == lines:
            branches[-1] = Branch(Versions(version, branches[-1].versions.high), lines)
        else:
            branches.append(Branch(Versions(version, version), lines))
    return branches


def merge(blocks: Iterable[list[Branch]]) -> list[list[Branch]]:
    """Blocks that follow each other and branch alike become one block."""
    merged: list[list[Branch]] = []
    for block in blocks:
        if merged and [b.versions for b in merged[-1]] == [b.versions for b in block]:
            merged[-1] = [Branch(a.versions, a.lines + b.lines) for a, b in zip(merged[-1], block, strict=True)]
        else:
            merged.append(block)
    return merged


def render(block: list[Branch], whole: Versions) -> list[str]:
    """Returns a block as source: if, elif, else over the version; or just the lines when they always hold."""
    if len(block) == 1:
        return list(block[0].lines)
    filled = [branch for branch in block if branch.lines]
    if not filled:
        return []
    source = []
    if len(filled) < len(block):
        # Some versions do nothing here: each condition must then be complete in itself.
        for i, branch in enumerate(filled):
            source.append(f"{'elif' if i else 'if'} {condition(branch.versions, whole)}:")
            source += indent(branch.lines)
        return source
    for i, branch in enumerate(block):
        last = i == len(block) - 1
        source.append("else:" if last else f"{'elif' if i else 'if'} version >= {branch.versions.low}:")
        source += indent(branch.lines)
    return source


def condition(versions: Versions, whole: Versions) -> str:
    if versions.low == versions.high and versions.low != whole.low and versions.high != whole.high:
        return f"version == {versions.low}"
    if versions.high >= whole.high:
        return f"version >= {versions.low}"
    if versions.low <= whole.low:
        return f"version <= {versions.high}"
    return f"{versions.low} <= version <= {versions.high}"


def indent(lines: Iterable[str]) -> list[str]:
    return ["    " + line for line in lines]


class Sizes:
    """The least number of bytes of a value, which limits the count of an array's elements."""

    def __init__(self, message: Message) -> None:
        self.flexible = message.flexible
        self.structs = {struct.name: struct for struct in message.structs}

    def of_struct(self, struct: Struct, version: int) -> int:
        size = sum(self.of_field(field, version) for field in struct.fields)
        return size + 1 if version in self.flexible else size

    def of_field(self, field: Field, version: int) -> int:
        if version not in field.versions or field.tag is not None:
            return 0
        compact = version in self.flexible
        if field.is_array:
            return 1 if compact else 4
        if field.is_struct and version in field.nullable:
            return 1
        return self.of_element(field, version)

    def of_element(self, field: Field, version: int) -> int:
        compact = version in self.flexible
        if field.is_struct:
            return self.of_struct(self.structs[field.element], version)
        if field.element in FIXED_WIDTHS:
            return FIXED_WIDTHS[field.element]
        if field.element == "uuid":
            return 16
        if compact:
            return 1
        return 2 if field.element == "string" else 4
