"""One struct as the source of one class: its fields, `read`, `write`."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Sequence

import attrs

from codegen.layout import FORMATS, Branch, Sizes, condition, indent, merge, render, runs, split, tagged
from codegen.schema import INFINITY, Field, Message, Struct, Versions

SCALAR_TYPES = {"bool": "bool", "float64": "float", "string": "str", "bytes": "bytes", "uuid": "Uuid"}
# What Reader and Writer call the type, where it is not called as Kafka calls it.
METHODS = {"bool": "boolean", "bytes": "blob"}
LAYOUT_NAMES = {"bool": "BOOL", "float64": "F64"} | {
    f"{s}int{n}": f"{s}I{n}".upper() for s in ("", "u") for n in (8, 16, 32, 64)
}
TAKEN_NAMES = {"cls", "count", "r", "self", "start", "tag", "tags", "version", "w"}


@attrs.define
class Module:
    """What the classes of one module share."""

    class_names: dict[tuple[str, str], str]  # (message, Kafka's struct name) -> class
    layouts: dict[str, str] = attrs.Factory(dict)  # constant -> format

    def layout(self, fields: Sequence[Field]) -> str:
        name = "_" + "_".join(LAYOUT_NAMES[field.element] for field in fields)
        self.layouts[name] = ">" + "".join(FORMATS[field.element] for field in fields)
        return name


def variable(name: str) -> str:
    """The name of a local variable: never one that means something else here."""
    return f"{name}_" if name in TAKEN_NAMES or keyword.iskeyword(name) or hasattr(builtins, name) else name


def singular(name: str) -> str:
    """The name of one element of an array. Only has to read well."""
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("s", "")):
        if name.endswith(ending) and not name.endswith("status"):
            return variable(name.removesuffix(ending) + instead)
    return f"{name}_item"


class StructEmitter:
    def __init__(self, module: Module, message: Message, struct: Struct) -> None:
        self.module = module
        self.message = message
        self.struct = struct
        self.versions = struct.versions & message.versions
        self.flexible = message.flexible & self.versions
        self.sizes = Sizes(message)
        self.is_message = struct.name == message.name
        self.name = message.name if self.is_message else module.class_names[message.name, struct.name]

    def emit(self) -> list[str]:
        body = [*self._class_variables(), *self._attributes(), "", *self._read(), "", *self._write()]
        return ["@attrs.define", f"class {self.name}:", *indent(body)]

    # Attributes

    def _class_variables(self) -> list[str]:
        if not self.is_message:
            return []
        message = self.message
        lines = [] if message.api_key is None else [f"api_key: ClassVar[int] = {message.api_key}"]
        flexible_since = self.flexible.low if self.flexible else None
        low = f"{message.versions.low}, " if message.versions.low else ""
        return [
            *lines,
            f"versions: ClassVar[range] = range({low}{message.versions.high + 1})",
            f"flexible_since: ClassVar[int | None] = {flexible_since}",
            "",
        ]

    def _attributes(self) -> list[str]:
        return [
            f"{f.attribute}: {self._type(f)} = {self._attribute_default(f)}{self._comment(f)}"
            for f in self.struct.fields
        ]

    def _class_of(self, field: Field) -> str:
        return self.module.class_names[self.message.name, field.element]

    def _is_optional(self, field: Field) -> bool:
        return bool(field.nullable & self.versions) or self._is_tagged_struct(field)

    @staticmethod
    def _is_tagged_struct(field: Field) -> bool:
        """One that is not there is None: cheaper than a struct of defaults, and clearer. Null itself would be taken."""
        return field.is_struct and not field.is_array and field.tag is not None and not field.nullable

    def _type(self, field: Field) -> str:
        kind = self._plain_type(field)
        return f"{kind} | None" if self._is_optional(field) else kind

    def _plain_type(self, field: Field) -> str:
        if field.is_struct:
            kind = self._class_of(field)
        elif field.element == "records":
            kind = "Buffer" if self.message.kind == "request" else "Buffer | Region"
        else:
            kind = SCALAR_TYPES.get(field.element, "int")
        return f"list[{kind}]" if field.is_array else kind

    def _default(self, field: Field) -> str:
        if field.element == "records" and not self._is_optional(field):
            return 'b""'
        if field.default is None or self._is_tagged_struct(field):
            return "None"
        if field.is_array:
            return "[]"
        if field.is_struct:
            return f"{self._class_of(field)}()"
        if field.element == "uuid":
            return "NULL_UUID"
        return repr(field.default).replace("'", '"')

    def _attribute_default(self, field: Field) -> str:
        default = self._default(field)
        if default == "[]":
            return "attrs.Factory(list)"
        return f"attrs.Factory({default[:-2]})" if default.endswith("()") else default

    def _comment(self, field: Field) -> str:
        notes = []
        if field.tag is not None:
            notes.append(f"tag {field.tag}")
        if not field.versions.covers(self.versions):
            notes.append(self._span(field.versions & self.versions))
        nullable = field.nullable & field.versions & self.versions
        if nullable and not nullable.covers(field.versions & self.versions):
            notes.append(f"null {self._span(nullable)}")
        return f"  # {', '.join(notes)}" if notes else ""

    def _span(self, versions: Versions) -> str:
        if versions.high == self.message.versions.high:
            return f"v{versions.low}+"
        return f"v{versions.low}" if versions.low == versions.high else f"v{versions.low}-{versions.high}"

    # read

    def _read(self) -> list[str]:
        blocks: list[list[Branch]] = []
        for run in runs(self.struct.fields):
            block = split(self.versions, lambda version, run=run: self._read_run(run, version))  # type: ignore[misc]
            declarations = self._declarations(run)
            blocks += [[Branch(self.versions, tuple(declarations))]] if declarations else []
            blocks.append(block)
        blocks += self._read_tags()
        body = self._version_check()
        for block in merge(blocks):
            body += render(block, self.versions)
        arguments = ", ".join(self._local(field) for field in self.struct.fields)
        return [
            "@classmethod",
            f"def read(cls, r: Reader, version: int) -> {self.name}:",
            *indent([*body, f"return cls({arguments})"]),
        ]

    def _version_check(self) -> list[str]:
        if not self.is_message:
            return []
        low, high = self.message.versions.low, self.message.versions.high
        outside = f"version != {low}" if low == high else f"not {low} <= version <= {high}"
        return [f"if {outside}:", f'    raise UnsupportedVersion("{self.name}", version)']

    def _declarations(self, run: Sequence[Field]) -> list[str]:
        """mypy takes a variable's type from the newest version, unless told when that says too little."""
        lines = []
        for field in run:
            kinds = [self._static_type(field, version) for version in reversed(list(self.versions))]
            if kinds[0] != self._type(field) and len(set(kinds)) > 1:
                lines.append(f"{self._local(field)}: {self._type(field)}")
        return lines

    def _static_type(self, field: Field, version: int) -> str:
        if version not in field.versions:
            default = self._default(field)
            return default if default in {"None", "[]"} else self._plain_type(field)
        return self._plain_type(field) + (" | None" if self._may_be_null(field, version) else "")

    @staticmethod
    def _may_be_null(field: Field, version: int) -> bool:
        return version in field.nullable

    @staticmethod
    def _local(field: Field) -> str:
        return variable(field.attribute)

    def _read_run(self, run: Sequence[Field], version: int) -> list[str]:
        present = [field for field in run if version in field.versions]
        lines = []
        if len(present) > 1:
            names = ", ".join(self._local(field) for field in present)
            lines.append(f"{names} = r.unpack({self.module.layout(present)})")
        elif present:
            lines += self._read_value(present[0], version)
        lines += [f"{self._local(f)} = {self._default(f)}" for f in run if f not in present]
        return lines

    def _read_value(self, field: Field, version: int) -> list[str]:
        local = self._local(field)
        compact = "compact_" if version in self.flexible else ""
        null = self._may_be_null(field, version)
        if not field.is_array:
            if field.is_struct and null:
                is_null = "r.int8() < 0" if field.tag is None else "r.unsigned_varint() == 0"
                return [f"{local} = None if {is_null} else {self._read_one(field, version)}"]
            return [f"{local} = {self._read_one(field, version, null)}"]
        least = min(
            self.sizes.of_element(field, v)
            for v in field.versions & self.versions
            if (v in self.flexible) == bool(compact)
        )
        assert least > 0, f"{self.name}.{field.attribute} could claim any number of elements"
        nullable = "nullable_" if null else ""
        count = f"r.{compact}{nullable}count({least})"
        if field.element in FORMATS:
            one, many = "", f"r.{field.element}s({{}})"
        else:
            one, many = self._read_one(field, version), "[{one} for _ in range({})]"
        if not null:
            return [f"{local} = {many.format(count, one=one)}"]
        return [f"count = {count}", f"{local} = None if count is None else {many.format('count', one=one)}"]

    def _read_one(self, field: Field, version: int, null: bool = False) -> str:
        if field.is_struct:
            return f"{self._class_of(field)}.read(r, version)"
        return f"r.{self._method(field, version, null)}()"

    def _method(self, field: Field, version: int, null: bool) -> str:
        name = METHODS.get(field.element, field.element)
        if field.element not in {"string", "bytes", "records"}:
            return name
        return f"{'compact_' if version in self.flexible else ''}{'nullable_' if null else ''}{name}"

    def _flexible_only(self, lines: Sequence[str]) -> list[Branch]:
        if self.flexible.covers(self.versions):
            return [Branch(self.versions, tuple(lines))]
        return [Branch(self.flexible, tuple(lines)), Branch(Versions(self.versions.low, self.flexible.low - 1), ())]

    def _read_tags(self) -> list[list[Branch]]:
        fields = tagged(self.struct.fields)
        if not self.flexible:
            assert not fields
            return []
        lines = []
        for field in fields:
            annotation = f": {self._type(field)}" if self._is_optional(field) or field.is_array else ""
            lines.append(f"{self._local(field)}{annotation} = {self._default(field)}")
        inner = ["r.skip_tags()"]
        if fields:
            inner = ["for tag in r.tags():"]
            for i, field in enumerate(fields):
                guard = self._tag_guard(field)
                inner += indent([f"{'elif' if i else 'if'} tag == {field.tag}{guard and f' and {guard}'}:"])
                inner += indent(indent(self._read_value(field, field.tagged.low)))
        defaults = [[Branch(self.versions, tuple(lines))]] if lines else []
        return [*defaults, self._flexible_only(inner)]

    def _tag_guard(self, field: Field) -> str:
        return "" if field.tagged.covers(self.flexible) else condition(field.tagged & self.versions, self.versions)

    # write

    def _write(self) -> list[str]:
        blocks = [
            split(self.versions, lambda version, run=run: self._write_run(run, version))  # type: ignore[misc]
            for run in runs(self.struct.fields)
        ]
        blocks += self._write_tags()
        body = self._version_check()
        for block in merge(blocks):
            body += render(block, self.versions)
        return ["def write(self, w: Writer, version: int) -> None:", *indent(body or ["pass"])]

    def _write_run(self, run: Sequence[Field], version: int) -> list[str]:
        present = [field for field in run if version in field.versions]
        lines = []
        for field in run:
            if field not in present and not field.ignorable:
                lines += [f"if {self._is_set(field)}:", f"    {self._unsupported(field)}"]
        if len(present) > 1:
            values = ", ".join(f"self.{field.attribute}" for field in present)
            lines.append(f"w.buf += {self.module.layout(present)}.pack({values})")
        elif present:
            lines += self._write_value(present[0], version)
        return lines

    def _unsupported(self, field: Field) -> str:
        return f'raise UnsupportedField("{self.name}.{field.attribute}", version)'

    def _is_set(self, field: Field) -> str:
        """The condition that a field has another value than its default."""
        value, default = f"self.{field.attribute}", self._default(field)
        if default == "None":
            return f"{value} is not None"
        if default == "True":
            return f"not {value}"
        if default == "False" or (default in {"[]", '""'} and not self._is_optional(field)):
            return value
        return f"{value} != {default}"

    def _write_value(self, field: Field, version: int) -> list[str]:
        value = f"self.{field.attribute}"
        null = self._may_be_null(field, version)
        known = field.tag is not None and self._default(field) == "None"  # its writing stands under "is not None"
        must = self._is_optional(field) and not null and not known
        compact = "compact_" if version in self.flexible else ""
        if field.is_array:
            if null and not known:
                written = indent(self._write_array(field, version, value))
                return [f"if {value} is None:", f"    w.{compact}null_count()", "else:", *written]
            if not must:
                return self._write_array(field, version, value)
            local = self._local(field)
            return [f"{local} = {self._required(field)}", *self._write_array(field, version, local)]
        if field.is_struct and null:
            marks = (
                ("w.int8(-1)", "w.int8(1)") if field.tag is None else ("w.unsigned_varint(0)", "w.unsigned_varint(1)")
            )
            written = [marks[1], f"{value}.write(w, version)"]
            return [f"if {value} is None:", f"    {marks[0]}", "else:", *indent(written)]
        return [self._write_one(field, version, self._required(field) if must else value, null)]

    def _required(self, field: Field) -> str:
        return f'required(self.{field.attribute}, "{self.name}.{field.attribute}")'

    def _write_array(self, field: Field, version: int, value: str) -> list[str]:
        count = f"w.{'compact_' if version in self.flexible else ''}count(len({value}))"
        if field.element in FORMATS:
            return [count, f"w.{field.element}s({value})"]
        item = singular(field.attribute)
        return [count, f"for {item} in {value}:", f"    {self._write_one(field, version, item)}"]

    def _write_one(self, field: Field, version: int, value: str, null: bool = False) -> str:
        if field.is_struct:
            return f"{value}.write(w, version)"
        return f"w.{self._method(field, version, null)}({value})"

    def _write_tags(self) -> list[list[Branch]]:
        if not self.flexible:
            return []
        fields = tagged(self.struct.fields)
        lines = []
        inner = ["tags = w.begin_tags()"] if fields else ["w.no_tags()"]
        for field in fields:
            # A field that must not be dropped is refused in the versions without it: what follows needs no version.
            absent = Versions(self.versions.low, field.tagged.low - 1) & self.versions
            if absent and not field.ignorable:
                lines += [
                    f"if {condition(absent, self.versions)} and {self._is_set(field)}:",
                    f"    {self._unsupported(field)}",
                ]
            guard = self._tag_guard(field) if field.ignorable else ""
            write = self._write_value(field, field.tagged.low)
            inner += [
                f"if {guard and f'{guard} and '}{self._is_set(field)}:",
                f"    start = w.begin_tag(tags, {field.tag})",
                *indent(write),
                "    w.end_tag(start)",
            ]
        checks = [[Branch(self.versions, tuple(lines))]] if lines else []
        return [*checks, self._flexible_only(inner)]


def emit_message(module: Module, message: Message) -> list[str]:
    """The classes of a message, each after those it is made of."""
    whole = Struct(message.name, Versions(0, INFINITY), message.fields)
    lines: list[str] = []
    for struct in (*message.structs, whole):
        lines += [*StructEmitter(module, message, struct).emit(), "", ""]
    return lines
