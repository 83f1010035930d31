"""Java's properties syntax: known cases, and a round trip over everything that can be written in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.config.definition import ConfigError
from kwire.config.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("# a comment\n! another\n\n   # indented\n", {}),
        ("a=1\nb:2\nc 3\nd\t4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a = 1", {"a": "1"}),
        ("a =: 1", {"a": ": 1"}),
        ("a  =  b = c ", {"a": "b = c "}),
        ("key", {"key": ""}),
        ("=value", {"": "value"}),
        ("a=1\\\n   ,2\\\n\t,3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=x\\", {"a": "x"}),
        ("a\\ b\\=c\\:d=1", {"a b=c:d": "1"}),
        ("a=C:\\\\dir\\new", {"a": "C:\\dir\new"}),
        ("a=\\t\\r\\f\\q", {"a": "\t\r\fq"}),
        ("a=\\u00e9\\ud83d\\ude00", {"a": "é😀"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_known_texts(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize("text", ["a=\\u00", "a=\\uzzzz", "\\u+123=1"])
def test_malformed_unicode_escape_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="escape"):
        parse_properties(text)


def written(text: str, *, key: bool) -> str:
    """Returns `text` as java.util.Properties.store would write it."""
    out: list[str] = []
    for position, char in enumerate(text):
        if char in "\\#!=:" or (char == " " and (key or position == 0)):
            out.append("\\" + char)
        elif char in "\t\n\r\f":
            out.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[char])
        elif not " " <= char <= "~":
            units = char.encode("utf-16-be")
            out += [f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)]
        else:
            out.append(char)
    return "".join(out)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(texts, texts, max_size=8), st.sampled_from(["=", ":", " = ", " : ", "\t=\t"]))
def test_what_is_written_is_read_back(properties: dict[str, str], separator: str) -> None:
    text = "\n".join(
        f"{written(key, key=True)}{separator}{written(value, key=False)}" for key, value in properties.items()
    )
    assert parse_properties(text) == properties


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_properties(text)
    except ConfigError:
        assert "\\u" in text
