"""Emits the code that writes a struct.

Fixed-width fields that follow each other are packed at once, and with them the empty count of tagged fields where they
are the last. What takes one byte is appended to `buf`, which is `w.buf`; the rest goes through the Writer's methods.
"""

from __future__ import annotations

import builtins
import keyword

from codegen.facts import NO_TAGS, StructFacts
from codegen.layout import FIXED_WIDTHS, Branch, condition, indent, is_fixed, merge, render, runs, split, tagged
from codegen.schema import Field, Versions

TAKEN_NAMES = {"buf", "count", "items", "self", "start", "tags", "version", "w"}


def variable(name: str) -> str:
    """The name of a local variable, changed if the generated code uses that name for something else."""
    return f"{name}_" if name in TAKEN_NAMES or keyword.iskeyword(name) or hasattr(builtins, name) else name


def singular(name: str) -> str:
    """The name of one element of an array. It only has to be readable."""
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("s", "")):
        if name.endswith(ending) and not name.endswith("status"):
            return variable(name.removesuffix(ending) + instead)
    return f"{name}_item"


def emit_write(facts: StructFacts) -> list[str]:
    methods = []
    if facts.alone:
        methods.append(_Writing(facts).write())
    if facts.in_arrays:
        methods.append(_Writing(facts).write_array())
    return [line for method in methods for line in [*method, ""]][:-1]


class _Writing:
    def __init__(self, facts: StructFacts) -> None:
        self.facts = facts
        self.versions = facts.versions
        self.tagged = tagged(facts.struct.fields)
        self.runs = runs(facts.struct.fields)

    def write(self) -> list[str]:
        fields = self._fields()
        buf = ["buf = w.buf"] if any("buf" in line for line in fields) else []
        body = [*self.facts.version_check(), *buf, *fields]
        return ["def write(self, w: Writer, version: int) -> None:", *indent(body or ["pass"])]

    def write_array(self) -> list[str]:
        """Returns the method that writes an array of the struct, its count included."""
        facts = self.facts
        compact = [
            "count = len(items) + 1",
            "if count < 128:",
            "    buf.append(count)",
            "else:",
            "    w.unsigned_varint(count)",
        ]
        count = [Branch(facts.flexible, tuple(compact)), Branch(facts.classic, ("w.count(len(items))",))]
        fields = ["self.write(w, version)"] if facts.alone else self._fields()
        body = [
            *render([branch for branch in count if branch.versions], self.versions),
            "for self in items:",
            *indent(fields or ["pass"]),
        ]
        buf = ["buf = w.buf"] if any("buf" in line for line in body) else []
        return [
            "@staticmethod",
            f"def write_array(items: list[{facts.name}], w: Writer, version: int) -> None:",
            *indent([*buf, *body]),
        ]

    def _fields(self) -> list[str]:
        blocks = [
            split(self.versions, lambda version, i=i: self._write_run(i, version))  # type: ignore[misc]
            for i in range(len(self.runs))
        ]
        blocks += self._write_tags()
        return [line for block in merge(blocks) for line in render(block, self.versions)]

    def _ends_with(self, i: int, version: int) -> bool:
        """Returns True if only an empty count of tagged fields follows the run."""
        if self.tagged or version not in self.facts.flexible:
            return False
        return not any(version in field.versions for run in self.runs[i + 1 :] for field in run)

    def _write_run(self, i: int, version: int) -> list[str]:
        run = self.runs[i]
        present = [field for field in run if version in field.versions]
        lines = []
        for field in run:
            if field not in present and not field.ignorable:
                lines += [f"if {self._is_set(field)}:", f"    {self._unsupported(field)}"]
        if not present:
            return lines
        last = self._ends_with(i, version)
        if is_fixed(present[0]):
            values = ", ".join(f"self.{field.attribute}" for field in present)
            layout = self.facts.module.layout(present, *([NO_TAGS] if last else []))
            return [*lines, f"buf += {layout}.pack({values})"]
        return [*lines, *self._write_value(present[0], version), *(["buf.append(0)"] if last else [])]

    def _unsupported(self, field: Field) -> str:
        return f'raise UnsupportedField("{self.facts.name}.{field.attribute}", version)'

    def _is_set(self, field: Field) -> str:
        """The condition that a field has a value other than its default."""
        value, default = f"self.{field.attribute}", self.facts.default(field)
        if default == "None":
            return f"{value} is not None"
        if default == "True":
            return f"not {value}"
        if default == "False" or (default in {"[]", '""'} and not self.facts.is_optional(field)):
            return value
        return f"{value} != {default}"

    def _write_value(self, field: Field, version: int) -> list[str]:
        facts, value = self.facts, f"self.{field.attribute}"
        null = version in field.nullable
        known = field.tag is not None and facts.default(field) == "None"  # its writing stands under "is not None"
        must = facts.is_optional(field) and not null and not known
        compact = version in facts.flexible
        null_mark = "buf.append(0)" if compact else "w.null_count()"
        if field.is_array:
            if null and not known:
                written = self._write_array(field, version, value)
                is_choice = written[0].startswith("if ")
                written = [f"el{written[0]}", *written[1:]] if is_choice else ["else:", *indent(written)]
                return [f"if {value} is None:", f"    {null_mark}", *written]
            if not must:
                return self._write_array(field, version, value)
            local = variable(field.attribute)
            return [f"{local} = {self._required(field)}", *self._write_array(field, version, local)]
        if field.is_struct and null:
            marks = ("255", "1") if field.tag is None else ("0", "1")  # 255 is an int8's -1
            written = [f"buf.append({marks[1]})", f"{value}.write(w, version)"]
            return [f"if {value} is None:", f"    buf.append({marks[0]})", "else:", *indent(written)]
        if null and compact and field.element in {"string", "bytes", "records"}:
            written = [self._write_one(field, version, value, False)]
            return written if known else [f"if {value} is None:", "    buf.append(0)", "else:", *indent(written)]
        return [self._write_one(field, version, self._required(field) if must else value, null)]

    def _required(self, field: Field) -> str:
        return f'required(self.{field.attribute}, "{self.facts.name}.{field.attribute}")'

    def _write_array(self, field: Field, version: int, value: str) -> list[str]:
        if field.is_struct:
            written = f"{self.facts.class_of(field)}.write_array({value}, w, version)"
            if version not in self.facts.flexible or field.tag is not None:
                return [written]
            return [f"if {value}:", f"    {written}", "else:", "    buf.append(1)"]
        count = f"w.{'compact_' if version in self.facts.flexible else ''}count(len({value}))"
        if field.element in FIXED_WIDTHS:
            return [count, f"w.{field.element}s({value})"]
        item = singular(field.attribute)
        return [count, f"for {item} in {value}:", f"    {self._write_one(field, version, item, False)}"]

    def _write_one(self, field: Field, version: int, value: str, null: bool) -> str:
        if field.is_struct:
            return f"{value}.write(w, version)"
        return f"w.{self.facts.method(field, version, null)}({value})"

    def _write_tags(self) -> list[list[Branch]]:
        facts = self.facts
        if not facts.flexible:
            return []
        if not self.tagged:
            # What a version ends with has the empty count behind it already; a struct without any field has not.
            empty = split(
                self.versions,
                lambda version: ["buf.append(0)"] if version in facts.flexible and self._ends_with(-1, version) else [],
            )
            return [empty]
        lines = []
        inner = ["tags = len(buf)", "buf.append(0)"]
        for field in self.tagged:
            # A field that must not be dropped is refused in the versions without it: what follows needs no version.
            absent = Versions(self.versions.low, field.tagged.low - 1) & self.versions
            if absent and not field.ignorable:
                lines += [
                    f"if {condition(absent, self.versions)} and {self._is_set(field)}:",
                    f"    {self._unsupported(field)}",
                ]
            guard = facts.tag_guard(field, self.versions) if field.ignorable else ""
            inner += [
                f"if {guard and f'{guard} and '}{self._is_set(field)}:",
                f"    start = w.begin_tag(tags, {field.tag})",
                *indent(self._write_value(field, field.tagged.low)),
                "    w.end_tag(start)",
            ]
        checks = [[Branch(self.versions, tuple(lines))]] if lines else []
        return [*checks, facts.flexible_only(inner)]
