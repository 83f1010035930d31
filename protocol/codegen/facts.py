"""The facts that reading and writing of one struct share: names, types, defaults, versions."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from codegen.layout import FORMATS, Branch, Sizes, condition
from codegen.schema import Field, Message, Struct, Versions

SCALAR_TYPES = {"bool": "bool", "float64": "float", "string": "str", "bytes": "bytes", "uuid": "Uuid"}
# The Reader's and Writer's names of types, where they are not Kafka's.
METHODS = {"bool": "boolean", "bytes": "blob"}
LAYOUT_NAMES = {"bool": "BOOL", "float64": "F64", "uuid": "UUID"} | {
    f"{s}int{n}": f"{s}I{n}".upper() for s in ("", "u") for n in (8, 16, 32, 64)
}
# The possible end of a layout: the byte that begins the next field, or the count of no tagged fields.
HEAD = ("HEAD", "B")
NO_TAGS = ("NO_TAGS", "x")


@attrs.define
class Module:
    """The names and layouts that the classes of one module share."""

    class_names: dict[tuple[str, str], str]  # (message, Kafka's struct name) -> class
    layouts: dict[str, str] = attrs.Factory(dict)  # constant -> format

    def layout(self, fields: Sequence[Field], *more: tuple[str, str]) -> str:
        pairs = [(LAYOUT_NAMES[field.element], FORMATS[field.element]) for field in fields]
        names, formats = zip(*pairs, *more, strict=True)
        name = "_" + "_".join(names)
        self.layouts[name] = ">" + "".join(formats)
        return name


class StructFacts:
    def __init__(self, module: Module, message: Message, struct: Struct) -> None:
        self.module = module
        self.message = message
        self.struct = struct
        self.versions = struct.versions & message.versions
        self.flexible = message.flexible & self.versions
        self.classic = Versions(self.versions.low, self.flexible.low - 1) if self.flexible else self.versions
        self.sizes = Sizes(message)
        self.is_message = struct.name == message.name
        self.name = message.name if self.is_message else module.class_names[message.name, struct.name]
        everywhere = [*message.fields, *(field for each in message.structs for field in each.fields)]
        uses = [field for field in everywhere if field.is_struct and field.element == struct.name]
        self.in_arrays = any(field.is_array for field in uses)
        self.alone = self.is_message or any(not field.is_array for field in uses)

    def class_of(self, field: Field) -> str:
        return self.module.class_names[self.message.name, field.element]

    def is_optional(self, field: Field) -> bool:
        return bool(field.nullable & self.versions) or self.is_tagged_struct(field)

    @staticmethod
    def is_tagged_struct(field: Field) -> bool:
        """Such a field is None if absent, cheaper than a struct of defaults and clearer. Null itself would be taken."""
        return field.is_struct and not field.is_array and field.tag is not None and not field.nullable

    def type(self, field: Field) -> str:
        if field.is_struct:
            kind = self.class_of(field)
        elif field.element == "records":
            kind = "Buffer" if self.message.kind == "request" else "Buffer | Region"
        else:
            kind = SCALAR_TYPES.get(field.element, "int")
        kind = f"list[{kind}]" if field.is_array else kind
        return f"{kind} | None" if self.is_optional(field) else kind

    def default(self, field: Field) -> str:
        if field.element == "records" and not self.is_optional(field):
            return 'b""'
        if field.default is None or self.is_tagged_struct(field):
            return "None"
        if field.is_array:
            return "[]"
        if field.is_struct:
            return f"{self.class_of(field)}()"
        if field.element == "uuid":
            return "NULL_UUID"
        return repr(field.default).replace("'", '"')

    def method(self, field: Field, version: int, null: bool) -> str:
        """The name of the method of Reader and Writer for one value."""
        name = METHODS.get(field.element, field.element)
        if field.element not in {"string", "bytes", "records"}:
            return name
        return f"{'compact_' if version in self.flexible else ''}{'nullable_' if null else ''}{name}"

    def least(self, field: Field, versions: Versions) -> int:
        """The least bytes that an element of an array takes in these versions."""
        least = min(self.sizes.of_element(field, version) for version in field.versions & versions)
        assert least > 0, f"{self.name}.{field.attribute} could claim any number of elements"
        return least

    def tag_guard(self, field: Field, whole: Versions) -> str:
        return "" if field.tagged.covers(self.flexible) else condition(field.tagged & self.versions, whole)

    def flexible_only(self, lines: Sequence[str]) -> list[Branch]:
        if self.flexible.covers(self.versions):
            return [Branch(self.versions, tuple(lines))]
        return [Branch(self.flexible, tuple(lines)), Branch(self.classic, ())]

    def version_check(self) -> list[str]:
        if not self.is_message:
            return []
        low, high = self.message.versions.low, self.message.versions.high
        outside = f"version != {low}" if low == high else f"not {low} <= version <= {high}"
        return [f"if {outside}:", f'    raise UnsupportedVersion("{self.name}", version)']
