"""ssl.principal.mapping.rules: the rules that Kafka 4.3.1's parser takes, and their results."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.security.tls.principals import MappingRules, NoMatchingRule
from kwire.security.tls.settings import TlsError

NAME = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", NAME),
        (" DEFAULT ", NAME),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "duke"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@$2/U", "DUKE@$2"),
        (r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L, DEFAULT", "duke@serviceusers"),
        (r"RULE:^cn=(.*?),.*$/$1/L,DEFAULT", NAME),
        (r"RULE:^CN=nobody$/nobody/, RULE:.*/all/", "allall"),
        (r"RULE:.+/all/", "all"),
        ("RULE:CN=Duke/a part/, RULE:CN=Duke.*/the whole/", "the whole"),
        (r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT", "duke"),
        (r"RULE:(?<all>.+)/<${all}>/", f"<{NAME}>"),
        (r"RULE:CN=(\w+),.+/\$1\\\/$1/", r"$1\/Duke"),
        (r"RULE:CN=(\w+),.+/$12/", "Duke2"),
        (r"RULE:CN=(\w+),.+/$0/", NAME),
        (r"RULE:CN=(\w+),(x)?.+/[$2]/", "[]"),
        ("RULE:CN=(Duke),.+/$1/,DEFAULT,RULE:.*/x/", "Duke"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(rules: str, name: str) -> None:
    assert MappingRules.parse(rules).name_of(NAME) == name


@pytest.mark.parametrize("rules", ["", " ", ",", "RULE:CN=other/x/"])
def test_without_a_rule_that_matches_there_is_no_name(rules: str) -> None:
    with pytest.raises(NoMatchingRule, match=NAME):
        MappingRules.parse(rules).name_of(NAME)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("default", "'default', which is no part of one"),
        ("DEFAULT/L", "rule 'DEFAULT/L' has '/L'"),
        ("DEFAULT/", "which is no part of one"),
        ("RULE:CN=$1", "which is no part of one"),
        ("RULE:CN=(.*)/", "which is no part of one"),
        ("RULE:CN=(.*)/$1", "which is no part of one"),
        ("RULE:CN=(.*)/$1/X", "has 'X'"),
        ("RULE:CN=(.*)/$1/LU", "has 'U'"),
        ("RULE:CN=(.*)/$1/L/U", "which is no part of one"),
        ("RULE:CN=((.*)/$1/", "is no pattern"),
        (r"RULE:\p{Alpha}/x/", "is no pattern"),
        ("RULE:CN=(.{99999999999999999999})/$1/", "is no pattern"),
        (f"RULE:{'(' * 5000}CN{')' * 5000}/$1/", "is no pattern"),
        ("RULE:CN=Duke.+/$1/", "names a group, and the pattern has none"),
        ("RULE:CN=(.*)/$/", "a \\$ without a number"),
        ("RULE:CN=(.*)/${x}/", "names a group that the pattern lacks"),
        ("RULE:CN=(?<x>.*)/${x/", "names a group that the pattern lacks"),
    ],
)
def test_what_is_no_rule_is_refused_in_one_clear_line(rules: str, why: str) -> None:
    with pytest.raises(TlsError, match=why) as error:
        MappingRules.parse(rules)
    assert str(error.value).startswith("Invalid value ")
    assert "ssl.principal.mapping.rules" in str(error.value)
    assert "\n" not in str(error.value)


ESCAPED = st.text("aB,/\\ ()$=", max_size=8).map(lambda text: "".join(f"\\{c}" if c in "/\\()$" else c for c in text))


@given(st.lists(st.tuples(ESCAPED, ESCAPED, st.sampled_from(["", "L", "U"])), min_size=1, max_size=4))
def test_whatever_is_escaped_is_meant_literally(rules: list[tuple[str, str, str]]) -> None:
    parsed = MappingRules.parse(", ".join(f"RULE:x{pattern}/{name}/{case}" for pattern, name, case in rules))
    literal, replaced, case = rules[0]
    name = "x" + _unescaped(literal)
    expected = _unescaped(replaced)
    assert parsed.name_of(name) == {"": expected, "L": expected.lower(), "U": expected.upper()}[case]


def _unescaped(text: str) -> str:
    characters = iter(text)
    return "".join(next(characters) if character == "\\" else character for character in characters)


@given(st.text("DEFAULTRULE:/\\$(){}[]?*+,. \nLU0123", max_size=40), st.text(max_size=20))
def test_any_text_is_rules_or_is_refused(rules: str, name: str) -> None:
    with suppress(TlsError, NoMatchingRule):
        MappingRules.parse(rules).name_of(name)
