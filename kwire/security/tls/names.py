"""The distinguished name of a certificate, as Java's X500Principal.getName() writes it (RFC 2253).

Permissions are granted to this text, so it has to be the same to the last backslash. It differs from the output of
certificate libraries: Java decodes every kind of string as UTF-8, has names for nine attributes, and escapes more than
necessary. So the bytes are parsed here. They come from a certificate that OpenSSL has verified.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8String, PrintableString, TeletexString, IA5String, GeneralString, BMPString.
_TEXT_TAGS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
_VERSION_TAG: Final = 0xA0
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_ESCAPED_AT_THE_ENDS: Final = " \r"


class MalformedName(ValueError):
    """The bytes are not a certificate, or its subject is not a valid name."""


def subject_of(certificate: bytes) -> str:
    """Returns the distinguished name of the subject of a certificate in DER. Raises MalformedName."""
    try:
        _, signed, _ = _element(_element(certificate)[1])
        position = 0
        if signed[0] == _VERSION_TAG:
            position = _element(signed)[2]
        for _ in ("serial number", "algorithm", "issuer", "validity"):
            position = _element(signed, position)[2]
        return distinguished_name(_element(signed, position)[1])
    except IndexError as error:
        raise MalformedName("the certificate ends too early") from error


def distinguished_name(content: bytes) -> str:
    """Returns the text of a name. `content` are its relative names in DER; the text begins with the last one."""
    return ",".join(reversed(["+".join(map(_attribute, _elements(names))) for names in _elements(content)]))


def _attribute(content: bytes) -> str:
    _, oid, end = _element(content)
    dotted = _dotted(oid)
    keyword = _KEYWORDS.get(dotted)
    tag, value, _ = _element(content, end)
    if keyword is None or tag not in _TEXT_TAGS:
        return f"{keyword or dotted}=#{content[end:].hex()}"
    return f"{keyword}={_escaped(value.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    start = len(text) - len(text.lstrip(_ESCAPED_AT_THE_ENDS))
    end = len(text.rstrip(_ESCAPED_AT_THE_ENDS))
    escaped = []
    for index, character in enumerate(text):
        if character in _ESCAPED or not start <= index < end:
            escaped.append(f"\\{character}")
        elif character == "\0":
            escaped.append("\\00")
        else:
            escaped.append(character)
    return "".join(escaped)


def _dotted(oid: bytes) -> str:
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _elements(content: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(content):
        _, value, position = _element(content, position)
        yield value


def _element(data: bytes, start: int = 0) -> tuple[int, bytes, int]:
    """Returns the tag, the content and the end of the DER element that begins at `start`."""
    tag, size, position = data[start], data[start + 1], start + 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(data[position : position + count], "big")
        position += count
    end = position + size
    if end > len(data):
        raise MalformedName("an element is longer than what it is in")
    return tag, data[position:end], end
