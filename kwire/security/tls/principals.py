"""The principal of a client's certificate, by ssl.principal.mapping.rules (KIP-371).

Rules are separated by commas. The first that matches the whole distinguished name gives the principal's name:

    DEFAULT                        the distinguished name
    RULE:pattern/replacement/      the pattern is a regular expression; $1 is its first group, \\/ a slash
    RULE:pattern/replacement/L     the same in lower case, or with U in upper case

Text between rules that is not a rule is refused. If the pattern has groups, a `$` with a number that no group has
stands for itself, as in Kafka. If it has none, the rule is refused here, while Kafka refuses each client.

Kafka's patterns are Java's, and those here are Python's. Common patterns are the same in both, except named groups,
`(?<name>)`, which are translated. Character classes such as \\p{Alpha} are refused with an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Self

import attrs
from kwire_protocol.kafka_error import quoted

from kwire.security.principal import USER, Principal
from kwire.security.tls.names import subject_of
from kwire.security.tls.settings import TlsError

_NAME: Final = "ssl.principal.mapping.rules"
_ANY: Final = r"[^\n\r\u0085\u2028\u2029]"  # what Java's dot stands for
_PART: Final = rf"((?:\\{_ANY}|[^\\/])*)"
_RULE: Final = rf"(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?){_ANY}*?|({_ANY}*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE, re.ASCII)
_NAMED_GROUP: Final = re.compile(r"((?:^|[^\\])(?:\\\\)*)\(\?<(?=[A-Za-z])")
_JAVA_WHITESPACE: Final = "".join(map(chr, range(0x21)))

Part = str | int
"""A part of a replacement: text, or the number of a group."""


class NoMatchingRule(Exception):
    """No rule applies to a name. The message lists the rules."""


@attrs.frozen
class _Rule:
    pattern: re.Pattern[str]
    replacement: Sequence[Part]
    change_case: Callable[[str], str]

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        # As in Java, each match is replaced, and the pattern may match the end as well.
        return self.change_case(self.pattern.sub(self._replaced, name))

    def _replaced(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self.replacement)


def _as_it_is(name: str) -> str:
    return name


_CASES: Final[dict[str, Callable[[str], str]]] = {"": _as_it_is, "L": str.lower, "U": str.upper}


@attrs.frozen
class MappingRules:
    """The parsed value of ssl.principal.mapping.rules, made by `parse`."""

    text: str
    _rules: tuple[_Rule | None, ...]
    """The rules in order; None is DEFAULT."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises TlsError."""
        rules: list[_Rule | None] = []
        for found in _SPLITTER.finditer(text.strip(_JAVA_WHITESPACE)):
            rule = found[1]
            match = _PARSER.match(rule)
            assert match is not None, "it matches the empty text as well"
            if match.end() != len(rule):
                raise _invalid(text, f"rule {quoted(rule)} has {quoted(rule[match.end() :])}, which is no part of one")
            if match[1] is not None:
                rules.append(None)
            elif match[2] is not None:
                rules.append(_rule(text, match[2], match[3], match[4]))
        return cls(text, tuple(rules))

    def name_of(self, distinguished_name: str) -> str:
        """Raises NoMatchingRule."""
        for rule in self._rules:
            name = distinguished_name if rule is None else rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of {_NAME} ({quoted(self.text)}) applies to {quoted(distinguished_name)}")

    def principal_of(self, certificate: bytes) -> Principal:
        """`certificate` is in DER. Raises NoMatchingRule, MalformedName."""
        return Principal(USER, self.name_of(subject_of(certificate)))


def _rule(text: str, pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re.compile(_NAMED_GROUP.sub(r"\1(?P<", pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise _invalid(text, f"{quoted(pattern)} is no pattern: {error}") from error
    return _Rule(compiled, _parts(text, replacement, compiled), _CASES[case])


def _parts(text: str, replacement: str, pattern: re.Pattern[str]) -> tuple[Part, ...]:
    """Splits a replacement as Java's Matcher.appendReplacement does."""
    parts: list[Part] = []
    position, length = 0, len(replacement)
    while position < length:
        character = replacement[position]
        position += 1
        if character == "\\":
            parts.append(replacement[position])  # there is one: the rule's own pattern takes them in pairs
            position += 1
        elif character != "$":
            parts.append(character)
        elif replacement[position : position + 1] == "{":
            name, brace, _ = replacement[position + 1 :].partition("}")
            if not brace or name not in pattern.groupindex:
                raise _invalid(text, f"the replacement {quoted(replacement)} names a group that the pattern lacks")
            parts.append(pattern.groupindex[name])
            position += len(name) + 2
        else:
            digits = re.match(r"[0-9]+", replacement[position:])
            if digits is None:
                raise _invalid(
                    text, f"the replacement {quoted(replacement)} has a $ without a number: write \\$ for the character"
                )
            # As in Java, the number has as many digits as make the number of a group.
            taken = 1
            while taken < len(digits[0]) and int(digits[0][: taken + 1]) <= pattern.groups:
                taken += 1
            number = int(digits[0][:taken])
            if number <= pattern.groups:
                parts.append(number)
                position += taken
            elif not pattern.groups:
                raise _invalid(text, f"the replacement {quoted(replacement)} names a group, and the pattern has none")
            else:
                parts.append("$")
    return tuple(parts)


def _invalid(text: str, why: str) -> TlsError:
    return TlsError(f"Invalid value {quoted(text)} for configuration {_NAME}: {why}")
