"""One struct as the source of one class: its fields, and the methods of emit_read and emit_write."""

from __future__ import annotations

from codegen.emit_read import emit_read
from codegen.emit_write import emit_write
from codegen.facts import Module, StructFacts
from codegen.layout import indent
from codegen.schema import INFINITY, Field, Message, Struct, Versions


def emit_struct(facts: StructFacts) -> list[str]:
    body = [
        *_class_variables(facts),
        *_futures(facts),
        "",
        *_init(facts),
        *emit_read(facts),
        *emit_write(facts),
    ]
    return [f"class {facts.name}(GeneratedMessage):", *indent(body)]


def _class_variables(facts: StructFacts) -> list[str]:
    if not facts.is_message:
        return []
    message = facts.message
    lines = [] if message.api_key is None else [f"api_key: ClassVar[int] = {message.api_key}"]
    flexible_since = facts.flexible.low if facts.flexible else None
    low = f"{message.versions.low}, " if message.versions.low else ""
    return [
        *lines,
        f"versions: ClassVar[range] = range({low}{message.versions.high + 1})",
        f"flexible_since: ClassVar[int | None] = {flexible_since}",
        "",
    ]


def _futures(facts: StructFacts) -> list[str]:
    return [f"__slots__ = ({''.join(f'{field.attribute!r}, ' for field in facts.struct.fields)})"]


def _init(facts: StructFacts) -> list[str]:
    fields = facts.struct.fields
    if not fields:
        return []
    return [
        "def __init__(",
        "    self,",
        *(f"    {it.attribute}: {facts.type(it)} = {_default(facts, it)},{_comment(facts, it)}" for it in fields),
        ") -> None:",
        *(f"    self.{it.attribute} = {_initial(facts, it)}" for it in fields),
        "",
    ]


def _is_fresh(facts: StructFacts, field: Field) -> bool:
    """Returns True if each message has its own default object: a list, or a struct."""
    return facts.default(field).endswith(("[]", "()"))


def _default(facts: StructFacts, field: Field) -> str:
    return "FRESH" if _is_fresh(facts, field) else facts.default(field)


def _initial(facts: StructFacts, field: Field) -> str:
    name = field.attribute
    return f"{facts.default(field)} if {name} is FRESH else {name}" if _is_fresh(facts, field) else name


def _comment(facts: StructFacts, field: Field) -> str:
    notes = []
    if field.tag is not None:
        notes.append(f"tag {field.tag}")
    if not field.versions.covers(facts.versions):
        notes.append(_span(facts, field.versions & facts.versions))
    nullable = field.nullable & field.versions & facts.versions
    if nullable and not nullable.covers(field.versions & facts.versions):
        notes.append(f"null {_span(facts, nullable)}")
    return f"  # {', '.join(notes)}" if notes else ""


def _span(facts: StructFacts, versions: Versions) -> str:
    if versions.high == facts.message.versions.high:
        return f"v{versions.low}+"
    return f"v{versions.low}" if versions.low == versions.high else f"v{versions.low}-{versions.high}"


def emit_message(module: Module, message: Message) -> list[str]:
    """Returns the classes of a message, each after those that it uses."""
    whole = Struct(message.name, Versions(0, INFINITY), message.fields)
    lines: list[str] = []
    for struct in (*message.structs, whole):
        lines += [*emit_struct(StructFacts(module, message, struct)), "", ""]
    return lines
