"""Distinguished names, to the last backslash as Java 17's X500Principal.getName() wrote them for the same bytes."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from kwire.security.tls.names import MalformedName, distinguished_name, subject_of
from testkit.security.tls.certificates import HOST, issued

UTF8 = 0x0C
COMMON_NAME = "2.5.4.3"

Attribute = tuple[str, int, bytes]


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    head = bytes([size]) if size < 0x80 else bytes([0x82, size >> 8, size & 0xFF])
    return bytes([tag]) + head + content


def encoded_oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    content = b""
    for number in (40 * first + second, *rest):
        septets = [number & 0x7F]
        while number := number >> 7:
            septets.append(number & 0x7F | 0x80)
        content += bytes(reversed(septets))
    return element(6, content)


def name(*relative_names: list[Attribute]) -> bytes:
    """Returns the content of a name, the first of its parts first."""
    return b"".join(
        element(0x31, b"".join(element(0x30, encoded_oid(oid) + element(tag, value)) for oid, tag, value in attributes))
        for attributes in relative_names
    )


@pytest.mark.parametrize(
    ("oid", "written"),
    [
        ("2.5.4.3", "CN=v"),
        ("2.5.4.6", "C=v"),
        ("2.5.4.7", "L=v"),
        ("2.5.4.8", "ST=v"),
        ("2.5.4.10", "O=v"),
        ("2.5.4.11", "OU=v"),
        ("2.5.4.9", "STREET=v"),
        ("0.9.2342.19200300.100.1.25", "DC=v"),
        ("0.9.2342.19200300.100.1.1", "UID=v"),
        ("2.5.4.12", "2.5.4.12=#0c0176"),
        ("2.5.4.5", "2.5.4.5=#0c0176"),
        ("1.2.840.113549.1.9.1", "1.2.840.113549.1.9.1=#0c0176"),
        ("1.3.6.1.4.1.42.2.11.2.1", "1.3.6.1.4.1.42.2.11.2.1=#0c0176"),
        ("2.39.1", "2.39.1=#0c0176"),
        ("2.999.3", "2.999.3=#0c0176"),
    ],
)
def test_nine_attributes_have_a_name_and_others_are_numbers_with_their_bytes(oid: str, written: str) -> None:
    assert distinguished_name(name([(oid, UTF8, b"v")])) == written


@pytest.mark.parametrize(
    ("tag", "value", "written"),
    [
        (0x13, b"Ab", "CN=Ab"),
        (0x14, b"Ab", "CN=Ab"),
        (0x14, b"\xe9a", "CN=\ufffda"),
        (0x16, b"Ab", "CN=Ab"),
        (0x1B, b"Ab", "CN=Ab"),
        (0x1C, b"\0\0\0A", "CN=#1c0400000041"),
        (0x1E, b"\0A\0b", r"CN=\00A\00b"),
        (0x12, b"Ab", "CN=#12024162"),
        (0x1A, b"Ab", "CN=#1a024162"),
        (0x04, b"Ab", "CN=#04024162"),
    ],
)
def test_strings_of_any_kind_are_taken_for_utf_8_and_the_rest_are_bytes(tag: int, value: bytes, written: str) -> None:
    assert distinguished_name(name([(COMMON_NAME, tag, value)])) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (b"a,b", r"a\,b"),
        (b"a=b", r"a\=b"),
        (b"a+b", r"a\+b"),
        (b"a<b>c", r"a\<b\>c"),
        (b"#a", r"\#a"),
        (b"a#b", r"a\#b"),
        (b"a;b", r"a\;b"),
        (b'a"b', r"a\"b"),
        (b"a\\b", r"a\\b"),
        (b"  a  ", r"\ \ a\ \ "),
        (b"   ", r"\ \ \ "),
        (b"a  b", "a  b"),
        (b"\ra\r", "\\\ra\\\r"),
        (b"\na\n", "\na\n"),
        (b" \r a \r ", "\\ \\\r\\ a\\ \\\r\\ "),
        (b"a\0b", r"a\00b"),
        (b"\ta*@'/&|\x7f", "\ta*@'/&|\x7f"),
        ("é日本😀".encode(), "é日本😀"),
        (b"", ""),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\xc3", "\ufffd"),
    ],
)
def test_characters_with_a_meaning_have_a_backslash(value: bytes, written: str) -> None:
    assert distinguished_name(name([(COMMON_NAME, UTF8, value)])) == f"CN={written}"


def test_the_last_part_comes_first_and_parts_with_several_attributes_keep_their_order() -> None:
    country, organization = ("2.5.4.6", 0x13, b"DE"), ("2.5.4.10", UTF8, b"Org")
    common, unit, other = (COMMON_NAME, UTF8, b"x"), ("2.5.4.11", UTF8, b"u"), ("1.2.3.4", UTF8, b"q")
    assert distinguished_name(name([country], [organization], [common])) == "CN=x,O=Org,C=DE"
    assert distinguished_name(name([country], [common, unit, other])) == "CN=x+OU=u+1.2.3.4=#0c0171,C=DE"
    assert distinguished_name(name([unit, common])) == "OU=u+CN=x"
    assert distinguished_name(name()) == ""


def test_the_subject_of_a_certificate_is_found() -> None:
    certificate = x509.load_pem_x509_certificate(issued(HOST, name="a, b").chain.encode())
    assert subject_of(certificate.public_bytes(Encoding.DER)) == r"CN=a\, b,OU=tests,O=kwire"


@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedName):
        subject_of(data)


@given(st.data())
def test_a_certificate_that_is_cut_is_refused(data: st.DataObject) -> None:
    der = x509.load_pem_x509_certificate(issued(HOST).chain.encode()).public_bytes(Encoding.DER)
    cut = data.draw(st.integers(0, len(der) - 1))
    with pytest.raises(MalformedName):
        subject_of(der[:cut])
