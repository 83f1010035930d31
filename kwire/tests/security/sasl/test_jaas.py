"""Lines of JAAS: words, quotes, comments and mistakes, as Kafka reads them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.security.sasl.jaas import PLAIN_MODULE, JaasError, LoginModule, parse_jaas, parse_modules


def test_a_line_names_a_module_a_flag_and_options() -> None:
    text = f'{PLAIN_MODULE} required username="broker" password="its secret" user_alice="hers";'
    options = {"username": "broker", "password": "its secret", "user_alice": "hers"}
    assert parse_jaas(text) == LoginModule(PLAIN_MODULE, "required", options)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("M required a=word;", "word"),
        ("M required a=org.apache.kafka-x_$9;", "org.apache.kafka-x_$9"),
        ("M required a='single \" quoted';", 'single " quoted'),
        ("""M required a="it's";""", "it's"),
        (r'M required a="say \"yes\" \\ now";', r'say "yes" \ now'),
        (r'M required a="\t\n\x\101\7\400\0";', "\t\nxA\7" + " 0" + "\0"),
        ('M required a="x";// said by hand', "x"),
        ("M required /* who */ a=\n  'x' ;", "x"),
        ("M required a=x / so much for slashes\n;", "x"),
        ("M REQUIRED a=x;", "x"),
        ("M required a=x a=y;", "y"),
        ("M required 'a'='é ü 漢';", "é ü 漢"),
        ("M required a=é漢;", "é漢"),
        ('M required a="";', ""),
    ],
)
def test_values_are_read_as_java_reads_them(text: str, value: str) -> None:
    assert parse_jaas(text).options == {"a": value}


def test_a_name_with_other_characters_stands_in_quotes() -> None:
    assert parse_jaas('M required "user_alice@example.com"="x";').options == {"user_alice@example.com": "x"}


def test_a_module_needs_no_options() -> None:
    assert parse_jaas("M optional;") == LoginModule("M", "optional", {})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no login module: write"),
        ("  // nothing but words\n", "no login module: write"),
        ("M required a=1;", "what follows required is no option: write name"),
        ("M required a=b@c;", "what follows the option a is no option"),
        ("M required user_a@b=c;", "around a name with other characters"),
        ("M required a", "what follows required is no option"),
        ("M required a=", "what follows required is no option"),
        ("M required ==b;", "what follows required is no option"),
        ("M required a:b;", "what follows required is no option"),
        ("M required a;", "what follows required is no option"),
        ("M required a=;", "what follows required is no option"),
        ("M required a==b;", "what follows required is no option"),
        ("M required a=b", "does not end with a semicolon after the option a"),
        ("M required", "does not end with a semicolon after required"),
        ("M", "after the login module M there has to be one of required"),
        ("M sometimes a=b;", "after the login module M there has to be one of required"),
        ("M = b;", "after the login module M there has to be one of required"),
        ("; M required;", "does not begin with the name of a login module"),
        ('M required a="b;', "a quote that does not end on its line"),
        ('M required a="b\n";', "a quote that does not end on its line"),
        ('M required a="b\\', "a quote that does not end on its line"),
        ("M required a=b; /* so", "a comment that does not end"),
        ("M required; N required;", "it has 2 login modules, and has to have 1"),
        ("M required a='\ud800';", "half of a character"),
        ("M" * ((1 << 20) + 1), "it has 1048577 characters"),
    ],
)
def test_a_mistake_is_reported_with_what_to_write(text: str, why: str) -> None:
    with pytest.raises(JaasError, match=why):
        parse_jaas(text)


def test_several_modules_can_be_read() -> None:
    assert [it.name for it in parse_modules("M required a=b; N required;")] == ["M", "N"]


def test_passwords_are_in_no_repr_and_no_message() -> None:
    assert "hidden" not in repr(parse_jaas('M required password="hidden";'))
    for text in (
        'M required password="hidden"',
        'M required password="hidden" "hidden2";',
        'M required password="hidden',
    ):
        with pytest.raises(JaasError) as error:
            parse_jaas(text)
        assert "hidden" not in str(error.value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


@given(st.dictionaries(st.text(), st.text(), max_size=5))
def test_whatever_is_quoted_comes_back(options: dict[str, str]) -> None:
    text = " ".join(f"{_quoted(name)}={_quoted(value)}" for name, value in options.items())
    assert parse_jaas(f"M required {text};").options == options


_PIECES = st.sampled_from(["M", "required", "=", ";", '"', "'", "\\", "/", "/*", "*/", "//", "\n", " ", "a", "7", "@"])


@given(st.lists(st.one_of(_PIECES, st.text(max_size=3)), max_size=30).map("".join))
def test_anything_is_a_module_or_a_mistake(text: str) -> None:
    with suppress(JaasError):
        assert parse_modules(text)
