"""Emits the code that reads a struct.

Requests and records, which a broker reads, are read by straight-line code over `buf` and `pos` in the flexible
versions, which every client of today uses: without a call per field. Fixed-width fields that follow each other are
unpacked at once, and with them the byte behind them, the head of what follows: the size of a string, the count of an
array, the count of the tagged fields. One byte is nearly always enough for it; otherwise, and for rare cases, the
Reader's methods do the work, which start at `r.pos`.

The generated code has no check for the end of the buffer: indexing and unpacking raise, and the one `try` of the
message turns that into a ProtocolError. Byte strings and arrays could silently be short, so they go through the Reader.

The classic versions, and responses, which only tests and tools read, are read by the Reader's methods alone, one for
each field: code for all of them in the other way would be half as long again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import calcsize

from codegen.facts import HEAD, StructFacts
from codegen.layout import FIXED_WIDTHS, Branch, indent, merge, render, runs, split, tagged
from codegen.schema import Field, Versions


def emit_read(facts: StructFacts) -> list[str]:
    if facts.message.kind == "response":
        return [*_PlainReading(facts, facts.versions, "read").read(), ""]
    methods = []
    if facts.flexible:
        if facts.alone:
            methods.append(_FlexibleReading(facts).read())
        if facts.in_arrays:
            methods.append(_FlexibleReading(facts).read_array())
    if facts.classic:
        name = "read_classic" if facts.message.flexible else "read"
        methods.append(_PlainReading(facts, facts.classic, name).read())
    return [line for method in methods for line in [*method, ""]]


def null_mark(field: Field) -> str:
    return "r.int8() < 0" if field.tag is None else "r.unsigned_varint() == 0"


def read_known_tags(facts: StructFacts, whole: Versions, read_value: Callable[[Field, int], list[str]]) -> list[str]:
    lines = ["for tag in r.tags():"]
    for i, field in enumerate(tagged(facts.struct.fields)):
        guard = facts.tag_guard(field, whole)
        lines += indent([f"{'elif' if i else 'if'} tag == {field.tag}{guard and f' and {guard}'}:"])
        lines += indent(indent(read_value(field, field.tagged.low)))
    return lines


def _method(name: str, arguments: str, result: str, body: Sequence[str]) -> list[str]:
    return ["@classmethod", f"def {name}(cls, r: Reader, version: int{arguments}) -> {result}:", *indent(body)]


class _FlexibleReading:
    def __init__(self, facts: StructFacts) -> None:
        self.facts = facts
        self.versions = facts.flexible
        self.tagged = tagged(facts.struct.fields)
        self.blocks = runs(facts.struct.fields, {*FIXED_WIDTHS, "uuid"})

    def read(self) -> list[str]:
        facts = self.facts
        body = facts.version_check()
        if facts.is_message and facts.classic:
            body += [f"if version < {self.versions.low}:", "    return cls.read_classic(r, version)"]
        straight = ["buf = r.buf", "pos = r.pos", "self = cls.__new__(cls)", *self._fields(), "r.pos = pos"]
        if facts.is_message:
            handler = ["except MALFORMED as error:", "    raise r.malformed(error) from None"]
            straight = ["try:", *indent(straight), *handler]
        return _method("read", "", facts.name, [*body, *straight, "return self"])

    def read_array(self) -> list[str]:
        result = f"list[{self.facts.name}]"
        if self.facts.alone:
            one_by_one = ["return [cls.read(r, version) for _ in range(count)]"]
            return _method("read_array", ", count: int", result, one_by_one)
        body = [
            "buf = r.buf",
            "pos = r.pos",
            "new = cls.__new__",
            f"items: {result} = []",
            "for _ in range(count):",
            "    self = new(cls)",
            *indent(self._fields()),
            "    items.append(self)",
            "r.pos = pos",
            "return items",
        ]
        return _method("read_array", ", count: int", result, body)

    def _fields(self) -> list[str]:
        blocks = [split(self.versions, lambda version: self._read_head(-1, version))]
        blocks += [
            split(self.versions, lambda version, i=i: self._read_block(i, version))  # type: ignore[misc]
            for i in range(len(self.blocks))
        ]
        blocks.append([Branch(self.versions, tuple(self._read_tags()))])
        return [line for block in merge(blocks) for line in render(block, self.versions)]

    # Heads

    def _head(self, i: int, version: int) -> str:
        """The variable for the head of what follows the block `i`; "" if what follows has none, or reads it itself."""
        for block in self.blocks[i + 1 :]:
            if any(version in field.versions for field in block):
                field = block[0]
                if field.is_array and field.is_struct:
                    return f"{field.attribute}_count"
                return f"{field.attribute}_size" if field.element == "string" and not field.is_array else ""
        return "tags"

    def _read_head(self, i: int, version: int) -> list[str]:
        head = self._head(i, version)
        return [f"{head} = buf[pos]", "pos += 1"] if head else []

    # Fields

    def _read_block(self, i: int, version: int) -> list[str]:
        block = self.blocks[i]
        present = [field for field in block if version in field.versions]
        absent = [f"self.{f.attribute} = {self.facts.default(f)}" for f in block if f not in present]
        if not present:
            return absent
        field = present[0]
        if not field.is_array and (field.element in FIXED_WIDTHS or field.element == "uuid"):
            return [*self._unpack(i, present, version), *absent]
        if field.element == "string" and not field.is_array:
            return self._read_string(i, field, version)
        return [*self._through_reader(self._read_value(field, version)), *self._read_head(i, version)]

    @staticmethod
    def _through_reader(lines: Sequence[str], pos: str = "pos") -> list[str]:
        return [f"r.pos = {pos}", *lines, "pos = r.pos"]

    def _unpack(self, i: int, fields: Sequence[Field], version: int) -> list[str]:
        head = self._head(i, version)
        layout = self.facts.module.layout(fields, *([HEAD] if head else []))
        names = [f"self.{field.attribute}" for field in fields] + ([head] if head else [])
        target = ", ".join(names) if len(names) > 1 else f"({names[0]},)"
        size = calcsize(self.facts.module.layouts[layout])
        return [f"{target} = {layout}.unpack_from(buf, pos)", f"pos += {size}"]

    def _read_string(self, i: int, field: Field, version: int) -> list[str]:
        value, size = f"self.{field.attribute}", f"{field.attribute}_size"
        head = self._head(i, version)
        null = version in field.nullable
        short = [
            f"text, {head or '_'} = SHORT_TEXT[{size}].unpack_from(buf, pos)",
            f"{value} = text.decode()",
            f"pos += {size}" if head else f"pos += {size} - 1",
        ]
        method = self.facts.method(field, version, null)
        rare = [*self._through_reader([f"{value} = r.{method}()"], "pos - 1"), *self._read_head(i, version)]
        lines = [f"if 0 < {size} < 128:", *indent(short)]
        if null:
            lines += [f"elif {size} == 0:", *indent([f"{value} = None", *self._read_head(i, version)])]
        return [*lines, "else:", *indent(rare)]

    def _read_value(self, field: Field, version: int) -> list[str]:
        """A field that is read through the Reader, except for the count of an array of structs without a tag."""
        facts, value = self.facts, f"self.{field.attribute}"
        null = version in field.nullable
        if not field.is_array:
            if not field.is_struct:
                return [f"{value} = r.{facts.method(field, version, null)}()"]
            one = f"{facts.class_of(field)}.read(r, version)"
            if not null:
                return [f"{value} = {one}"]
            return [f"{value} = None if {null_mark(field)} else {one}"]
        least = facts.least(field, self.versions)
        nullable = "nullable_" if null else ""
        if not field.is_struct:
            scalar = facts.method(field, version, False)
            many = f"r.{scalar}s({{}})" if field.element in FIXED_WIDTHS else f"[r.{scalar}() for _ in range({{}})]"
            count, empty = f"r.compact_{nullable}count({least})", ""
        else:
            many = f"{facts.class_of(field)}.read_array(r, version, {{}})"
            head = f"{field.attribute}_count"
            if field.tag is None:
                count, empty = f"r.{nullable}elements({head}, {least})", f"[] if {head} == 1 else "
            else:
                count, empty = f"r.compact_{nullable}count({least})", ""
        if not null:
            return [f"{value} = {empty}{many.format(count)}"]
        return [f"elements = {count}", f"{value} = None if elements is None else {many.format('elements')}"]

    # Tagged fields

    def _read_tags(self) -> list[str]:
        if not self.tagged:
            return ["if tags:", "    pos = r.unknown_tags(pos - 1)"]
        lines = [f"self.{field.attribute} = {self.facts.default(field)}" for field in self.tagged]
        known = read_known_tags(self.facts, self.versions, self._read_value)
        return [*lines, "if tags:", *indent(self._through_reader(known, "pos - 1"))]


class _PlainReading:
    """Reads with the Reader's methods only: `method` is the name of the generated method for these versions."""

    def __init__(self, facts: StructFacts, versions: Versions, method: str) -> None:
        self.facts = facts
        self.versions = versions
        self.name = method

    def read(self) -> list[str]:
        facts = self.facts
        blocks = [
            split(self.versions, lambda version, run=run: self._read_run(run, version))  # type: ignore[misc]
            for run in runs(facts.struct.fields)
        ]
        lines = [line for block in merge([*blocks, *self._read_tags()]) for line in render(block, self.versions)]
        check = facts.version_check() if self.name == "read" else []
        return _method(self.name, "", facts.name, [*check, "self = cls.__new__(cls)", *lines, "return self"])

    def _read_run(self, run: Sequence[Field], version: int) -> list[str]:
        present = [field for field in run if version in field.versions]
        lines = []
        if len(present) > 1:
            names = ", ".join(f"self.{field.attribute}" for field in present)
            lines.append(f"{names} = r.unpack({self.facts.module.layout(present)})")
        elif present:
            lines += self._read_value(present[0], version)
        return lines + [f"self.{f.attribute} = {self.facts.default(f)}" for f in run if f not in present]

    def _read_value(self, field: Field, version: int) -> list[str]:
        facts, value, null = self.facts, f"self.{field.attribute}", version in field.nullable
        if not field.is_array:
            one = self._read_one(field, version, null)
            if field.is_struct and null:
                one = f"None if {null_mark(field)} else {one}"
            return [f"{value} = {one}"]
        compact = version in facts.flexible
        alike = facts.flexible & self.versions if compact else facts.classic
        prefix = ("compact_" if compact else "") + ("nullable_" if null else "")
        count = f"r.{prefix}count({facts.least(field, alike)})"
        one = self._read_one(field, version, False)
        many = f"r.{field.element}s({{}})" if field.element in FIXED_WIDTHS else f"[{one} for _ in range({{}})]"
        if not null:
            return [f"{value} = {many.format(count)}"]
        return [f"elements = {count}", f"{value} = None if elements is None else {many.format('elements')}"]

    def _read_one(self, field: Field, version: int, null: bool) -> str:
        if field.is_struct:
            return f"{self.facts.class_of(field)}.{self.name}(r, version)"
        return f"r.{self.facts.method(field, version, null)}()"

    def _read_tags(self) -> list[list[Branch]]:
        facts, fields = self.facts, tagged(self.facts.struct.fields)
        defaults = tuple(f"self.{field.attribute} = {facts.default(field)}" for field in fields)
        blocks = [[Branch(self.versions, defaults)]] if defaults else []
        flexible = facts.flexible & self.versions
        if not flexible:
            return blocks
        lines = read_known_tags(facts, flexible, self._read_value) if fields else ["r.skip_tags()"]
        return [*blocks, facts.flexible_only(lines)]
