"""Patterns from clients: matches, refusals, and that none takes long or stays in memory."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
import re2

from kwire.names.patterns import MAX_LENGTH, InvalidPattern, Pattern


@pytest.mark.parametrize(
    ("pattern", "matched", "unmatched"),
    [
        ("abc", ["abc"], ["ab", "abcd", "xabc", "ABC", ""]),
        ("a.c", ["abc", "a.c", "aéc"], ["ac", "a\nc"]),
        ("(?s)a.c", ["a\nc"], []),
        ("a*", ["", "a", "aaa"], ["b", "ab"]),
        ("a+b?", ["a", "aab"], ["", "b", "abb"]),
        ("a|bc|", ["a", "bc", ""], ["abc", "b"]),
        ("(a|b)*c", ["c", "abbac"], ["ab"]),
        ("(?:a|b)(?P<n>c)(?<m>d)", ["acd", "bcd"], ["cd"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        ("a{0,2}", ["", "a", "aa"], ["aaa"]),
        ("(ab){1,2}c", ["abc", "ababc"], ["c", "abababc"]),
        ("a{,2}", ["a{,2}"], ["a", "aa"]),
        ("a{", ["a{"], ["a"]),
        ("a+?b*?c??", ["aabbc", "a"], ["b"]),
        ("[a-c-]+", ["abc-"], ["d", ""]),
        ("[^a-c]", ["d", "é", "\n"], ["a", "dd"]),
        ("[]a]+", ["]a"], ["b"]),
        ("[^]a]", ["b"], ["]", "a"]),
        (r"[\d_]+", ["1_2"], ["a"]),
        (r"\d\D\w\W\s\S", ["1a_- x"], ["aaaaaa"]),
        (r"\.\*\\\-", [".*\\-"], ["a*\\-"]),
        (r"\x41\x{e9}\t", ["Aé\t"], ["aé\t"]),
        (r"\Qa.b*\Ec?", ["a.b*", "a.b*c"], ["aab", "a.bbb"]),
        (r"\Qa.b", ["a.b"], ["aab"]),
        ("^abc$", ["abc"], ["ab"]),
        (r"\Aabc\z", ["abc"], ["ab"]),
        ("a^b|a$b", [], ["ab", "a^b"]),
        ("(^a|b$)+", ["a", "b", "ab"], ["ba", "bb"]),
        ("^$", [""], ["a"]),
        ("$^", [""], ["a"]),
        ("(?i)order-É[a-c]", ["ORDER-éB", "order-Éc"], ["order-ed"]),
        ("(a*)*b", ["b", "aab"], ["a"]),
        ("(|a)+", ["", "aa"], ["b"]),
        ("[[:alpha:]]+", ["aB"], ["a1", "é"]),
        (r"\pL+", ["aé"], ["a1"]),
        (r"a\b.*", ["a", "a b"], ["ab"]),
        ("a(?i)b", ["ab", "aB"], ["Ab"]),
        (r"\Qa*\E*", ["a", "a**"], ["aa"]),
        ("[\U0001f600-\U0001f64f]", ["\U0001f610"], ["a"]),
    ],
)
def test_what_a_pattern_matches(pattern: str, matched: list[str], unmatched: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [name for name in matched if not compiled.matches(name)] == []
    assert [name for name in unmatched if compiled.matches(name)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "(a", "a)", "[", "[a", "[]", "[b-a]", "[a-\\d]", "*", "+a", "a|*", "a**", "a+{2}", "a{2}{3}",
        "a{3,2}", "a{1001}", "\\", "a\\", "[\\", "\\1", "\\pX", "(?i", "(?=a)", "(?!a)", "(?<=a)", "(" * 50,
    ],
)  # fmt: skip
def test_what_is_no_pattern_is_refused_with_a_reason(pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidPattern) as refused:
        Pattern(pattern)
    assert re.search("'.+", str(refused.value))
    assert len(str(refused.value)) < 400
    assert capfd.readouterr().err == "", "RE2 prints nothing of its own"


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+$b", "(.*)(.*)(.*)(.*)(.*)(.*)b"])
def test_patterns_that_stop_a_backtracking_matcher_take_no_time(pattern: str) -> None:
    assert not Pattern(pattern).matches("a" * 10_000)


@pytest.mark.parametrize(
    "pattern", ["a" * (MAX_LENGTH + 1), "((a{100}){100}){100}", "((){1000}){1000}", "(?:a{1000}){2}a{1000}", r"\pL{2}"]
)
def test_a_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


def test_as_long_a_pattern_as_is_allowed_is_taken() -> None:
    assert Pattern("a" * MAX_LENGTH).matches("a" * MAX_LENGTH)


def test_no_pattern_is_kept_when_it_has_served() -> None:
    for text in ("a", "b", "(a"):
        with suppress(InvalidPattern):
            Pattern(text)
        assert re2._Regexp._make.cache_info().currsize == 0
