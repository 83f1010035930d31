"""The lines that name a login module and its options: the value of sasl.jaas.config.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="broker" password="secret" user_alice="hers";

Words and quotes are those of Java's StreamTokenizer, as Kafka's JaasConfig sets it up:

* a word is of letters, digits and `. - _ $`, and does not begin with a digit, a point or a minus;
* anything else is in quotes, double or single; in them `\\n`, `\\t`, `\\"`, `\\\\` and octal `\\101` are Java's
  escapes, and a backslash before another character stands for that character;
* a slash outside quotes begins a comment, up to the end of the line, or up to `*/` after `/*`.

The text has passwords, so no message repeats a part of it, except names that are no secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

CONTROL_FLAGS: Final = ("required", "requisite", "sufficient", "optional")

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

MODULES: Final = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    "OAUTHBEARER": OAUTHBEARER_MODULE,
}
"""The login module of each mechanism."""

MAX_TEXT_CHARS: Final = 1 << 20


class JaasError(ValueError):
    """The text is not a valid JAAS configuration. The message describes the correct form."""


@attrs.frozen
class LoginModule:
    """One login module. `control_flag` is in lower case, and has no meaning for Kafka."""

    name: str
    control_flag: str
    options: Mapping[str, str] = attrs.field(repr=False)


@attrs.frozen
class _Token:
    """A word, something in quotes, or one other character, which is its own `kind`."""

    kind: str
    text: str = attrs.field(repr=False)


_WORD: Final = "word"
_TOKEN: Final = re.compile(
    r"""
      (?P<blank> [\x00-\x20]+ | /\*.*?\*/ | /(?!\*)[^\r\n]* )
    | (?P<word>  [A-Za-z_$\xa0-\U0010ffff] [A-Za-z0-9_$.\-\xa0-\U0010ffff]* )
    | "(?P<double> (?: [^"\\\r\n] | \\. )* )"
    | '(?P<single> (?: [^'\\\r\n] | \\. )* )'
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse_jaas(text: str) -> LoginModule:
    """Returns the only login module of the text. Raises JaasError."""
    modules = parse_modules(text)
    if len(modules) != 1:
        raise JaasError(f"it has {len(modules)} login modules, and has to have 1")
    return modules[0]


def parse_modules(text: str) -> list[LoginModule]:
    """Returns all login modules of the text, at least one. Raises JaasError."""
    if len(text) > MAX_TEXT_CHARS:
        raise JaasError(f"it has {len(text)} characters, and may have {MAX_TEXT_CHARS}")
    if re.search("[\ud800-\udfff]", text):
        raise JaasError("it has half of a character, which is no text")
    tokens = _tokens(text)
    modules = []
    while tokens:
        modules.append(_module(tokens))
    if not modules:
        raise JaasError('it has no login module: write MODULE required name="value";')
    return modules


def _module(tokens: list[_Token]) -> LoginModule:
    """Removes the tokens of a module from the end of the list, which is in reverse order, and returns the module."""
    name = tokens.pop()
    if name.kind is not _WORD:
        raise JaasError("it does not begin with the name of a login module")
    flag = tokens.pop() if tokens else None
    if flag is None or flag.text.lower() not in CONTROL_FLAGS:
        raise JaasError(
            f"after the login module {_short(name.text)} there has to be one of {', '.join(CONTROL_FLAGS)}: "
            "write required"
        )
    options: dict[str, str] = {}
    before = flag.text
    while tokens:
        key = tokens.pop()
        if key.kind == ";":
            return LoginModule(name.text, flag.text.lower(), options)
        equals = tokens.pop() if tokens else None
        value = tokens.pop() if tokens else None
        if key.kind is not _WORD or equals is None or equals.kind != "=" or value is None or value.kind is not _WORD:
            raise JaasError(
                f'what follows {_short(before)} is no option: write name="value", with quotes around the value, and '
                "around a name with other characters than letters, digits and . - _ $"
            )
        options[key.text] = value.text
        before = f"the option {_short(key.text)}"
    raise JaasError(f"it does not end with a semicolon after {_short(before)}")


def _tokens(text: str) -> list[_Token]:
    """Returns the tokens in reverse order, so that the next one is taken from the end."""
    tokens = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "word":
            tokens.append(_Token(_WORD, match[0]))
        elif kind in ("double", "single"):
            tokens.append(_Token(_WORD, _ESCAPE.sub(_unescape, match[kind])))
        elif kind == "other":
            if match[0] in "\"'":
                raise JaasError("it has a quote that does not end on its line")
            if text.startswith("/*", match.start()):
                raise JaasError("it has a comment that does not end")
            tokens.append(_Token(match[0], match[0]))
    tokens.reverse()
    return tokens


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPED.get(escaped, escaped)


def _short(name: str) -> str:
    """Shortens a name for a message. A name is no secret unless quotes are missing: then it may contain anything."""
    return name if len(name) <= 100 else f"{name[:100]}..."
