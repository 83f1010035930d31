"""Keystores and truststores of all types: contents, and the errors about those that cannot be read."""

from __future__ import annotations

import base64
from pathlib import Path

import attrs
import pytest
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    pkcs12,
)

from kwire.security.tls.contexts import server_context
from kwire.security.tls.keystores import MAX_FILE_BYTES, file_states, load_stores
from kwire.security.tls.settings import TlsError, TlsSettings
from testkit.security.tls.certificates import HOST, authority, issued, trusted
from testkit.security.tls.keystores import PASSWORD, encrypted, pkcs12_of

EC_KEY = bytes.fromhex("06072a8648ce3d0201")
"""The object identifier of keys for elliptic curves."""
NO_KEY = bytes.fromhex("06072a8648ce3d0209")
"""An object identifier that no kind of key has."""
JKS = b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1" + bytes(100)


def in_openssls_own_form(key_pem: str) -> str:
    """Encrypts the key in a form whose header has the cipher."""
    key = load_pem_private_key(key_pem.encode(), None)
    form, encryption = PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(PASSWORD.encode())
    return key.private_bytes(Encoding.PEM, form, encryption).decode()


def changed(pem: str, old: bytes, new: bytes) -> str:
    """Returns the same PEM, with other bytes in its first block."""
    head, _, rest = pem.partition("-----\n")
    text, dashes, tail = rest.partition("-----END")
    return f"{head}-----\n{base64.b64encode(base64.b64decode(text).replace(old, new)).decode()}\n{dashes}{tail}"


def point_of(chain: str) -> bytes:
    """Returns the public key, as the first certificate has it."""
    key = x509.load_pem_x509_certificate(chain.encode()).public_key()
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def pkcs12_of_key(key_pem: str) -> bytes:
    """Returns the key without its certificate."""
    key = load_pem_private_key(key_pem.encode(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    return pkcs12.serialize_key_and_certificates(b"key", key, None, None, BestAvailableEncryption(PASSWORD.encode()))


def chain_of_three() -> tuple[str, str]:
    """Makes a key, and the chain of its certificate: with two authorities between it and the root."""
    leaf = authority().create_child_ca().create_child_ca().issue_cert(HOST)
    return leaf.private_key_pem.bytes().decode(), "".join(it.bytes().decode() for it in leaf.cert_chain_pems)


def refusal(**settings: str) -> str:
    with pytest.raises(TlsError) as error:
        load_stores(TlsSettings(**settings))  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
    assert PASSWORD not in str(error.value)
    return str(error.value)


def test_a_pem_file_has_key_and_chain_in_any_order(tmp_path: Path) -> None:
    key, chain = chain_of_three()
    for number, text in enumerate((key + chain, chain + key, f"# mine\n{key}\n\nsubject=CN = x\n{chain}")):
        path = tmp_path / f"{number}.pem"
        path.write_text(text)
        store = load_stores(TlsSettings(keystore_type="PEM", keystore_location=str(path))).key_store
        assert store is not None
        assert len(store.chain) == 3


def test_pem_in_place_may_have_spaces_for_line_breaks() -> None:
    certificate = issued(HOST)
    settings = TlsSettings(
        keystore_type="PEM",
        keystore_key=" ".join(certificate.key.split("\n")),
        keystore_certificate_chain=" ".join(certificate.chain.split("\n")),
        truststore_type="PEM",
        truststore_certificates=" ".join(trusted().split("\n")),
    )
    stores = load_stores(settings)
    assert stores.key_store is not None
    assert stores.trusted is not None
    server_context(settings, stores)


def test_an_encrypted_key_in_pem_is_opened_with_its_password() -> None:
    certificate = issued(HOST)
    settings = TlsSettings(
        keystore_type="PEM",
        keystore_key=encrypted(certificate.key),
        keystore_certificate_chain=certificate.chain,
        key_password=PASSWORD,
    )
    server_context(settings)
    with pytest.raises(TlsError, match=r"ssl\.key\.password does not open"):
        server_context(attrs.evolve(settings, key_password="wrong"))
    with pytest.raises(TlsError, match=r"encrypted private key: set ssl\.key\.password"):
        server_context(attrs.evolve(settings, key_password=None))


@pytest.mark.parametrize("type_", ["PKCS12", "JKS", "pkcs12"])
def test_pkcs12_is_read_whether_it_is_called_that_or_jks(tmp_path: Path, type_: str) -> None:
    key, chain = chain_of_three()
    (tmp_path / "key.p12").write_bytes(pkcs12_of(chain, key))
    (tmp_path / "trust.p12").write_bytes(pkcs12_of(trusted("one") + trusted("two"), None))
    settings = TlsSettings(
        keystore_type=type_,
        keystore_location=str(tmp_path / "key.p12"),
        keystore_password=PASSWORD,
        truststore_type=type_,
        truststore_location=str(tmp_path / "trust.p12"),
        truststore_password=PASSWORD,
    )
    stores = load_stores(settings)
    assert stores.key_store is not None
    assert stores.trusted is not None
    assert [it.subject for it in stores.key_store.chain] == [
        it.subject for it in x509.load_pem_x509_certificates(chain.encode())
    ]
    assert len(stores.trusted) == 2
    server_context(settings, stores)


@pytest.mark.parametrize("key", ["RSA", "ECDSA"])
def test_keys_of_every_kind_can_be_used(key: str) -> None:
    certificate = issued(HOST, key=key)
    settings = TlsSettings(
        keystore_type="PEM", keystore_key=certificate.key, keystore_certificate_chain=certificate.chain
    )
    server_context(settings)


@pytest.mark.parametrize("kind", ["keystore", "truststore"])
def test_a_file_of_javas_own_format_is_refused_with_what_converts_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "server.jks"
    path.write_bytes(JKS)
    message = refusal(**{f"{kind}_location": str(path), f"{kind}_password": PASSWORD})
    assert message.startswith(f"ssl.{kind}.location: {path} is in Java's own format")
    assert f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12" in message


@pytest.mark.parametrize("kind", ["keystore", "truststore"])
def test_files_that_cannot_be_used_are_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store"
    where = {f"{kind}_location": str(path), f"{kind}_password": PASSWORD}
    assert refusal(**where) == f"ssl.{kind}.location: {path} cannot be read: No such file or directory"
    path.mkdir()
    assert "cannot be read: Is a directory" in refusal(**where)
    path.rmdir()
    path.write_bytes(b"garbage")
    assert "is no keystore of the type PKCS12, or it is damaged" in refusal(**where)
    path.write_text(issued(HOST).pem)
    assert f"is PEM, and ssl.{kind}.type is JKS: set it to PEM" in refusal(**where)
    content = pkcs12_of(trusted(), None)
    path.write_bytes(content)
    assert f"is not opened by ssl.{kind}.password" in refusal(**{**where, f"{kind}_password": "wrong"})
    path.write_bytes(content[:-50])
    assert str(path) in refusal(**where)
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert "that is no keystore" in refusal(**where)
    assert "which kwire does not read" in refusal(**where, **{f"{kind}_type": "BCFKS"})
    assert refusal(**{f"{kind}_location": str(path)}).endswith(f"ssl.{kind}.password is not: set that, too")
    assert refusal(**{f"{kind}_password": PASSWORD}).endswith(f"ssl.{kind}.location is not: set that, too")
    assert "has none" in refusal(**where, **{f"{kind}_type": "PEM"})


@pytest.mark.parametrize("content", [pkcs12_of(trusted(), None), pkcs12_of_key(issued(HOST).key)])
def test_a_keystore_needs_a_key_and_its_certificate(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.p12"
    path.write_bytes(content)
    message = refusal(keystore_location=str(path), keystore_password=PASSWORD)
    assert message.startswith(f"ssl.keystore.location: {path} has no private key with its certificate")


def test_a_truststore_needs_a_certificate(tmp_path: Path) -> None:
    path = tmp_path / "store.p12"
    path.write_bytes(pkcs12_of_key(issued(HOST).key))
    message = refusal(truststore_location=str(path), truststore_password=PASSWORD)
    assert message.startswith(f"ssl.truststore.location: {path} has no certificate: import the ones to be trusted")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"keystore_key": issued(HOST).key}, "ssl.keystore.type is JKS: set it to PEM"),
        ({"keystore_type": "PEM", "keystore_key": issued(HOST).key}, "ssl.keystore.certificate.chain is not: set both"),
        (
            {"keystore_type": "PEM", "keystore_certificate_chain": issued(HOST).chain},
            "ssl.keystore.key is not: set both",
        ),
        (
            {"keystore_type": "PEM", "keystore_key": "x", "keystore_certificate_chain": issued(HOST).chain},
            "ssl.keystore.key has no private keys in PEM",
        ),
        (
            {
                "keystore_type": "PEM",
                "keystore_key": issued(HOST).key * 2,
                "keystore_certificate_chain": issued(HOST).chain,
            },
            "has 2 private keys",
        ),
        (
            {"keystore_type": "PEM", "keystore_key": issued(HOST).key, "keystore_certificate_chain": "x"},
            "ssl.keystore.certificate.chain has no certificate in PEM",
        ),
        (
            {
                "keystore_type": "PEM",
                "keystore_key": issued(HOST).key,
                "keystore_certificate_chain": issued(HOST, name="other").chain,
            },
            "has a private key that does not belong to its first certificate",
        ),
        (
            {
                "keystore_type": "PEM",
                "keystore_key": issued(HOST).key.replace("M", "N"),
                "keystore_certificate_chain": issued(HOST).chain,
            },
            "has a private key that cannot be read",
        ),
        (
            {
                "keystore_type": "PEM",
                "keystore_key": in_openssls_own_form(issued(HOST).key),
                "keystore_certificate_chain": issued(HOST).chain,
                "key_password": PASSWORD,
            },
            "ssl.keystore.key has a private key in an old format of OpenSSL's: convert it with `openssl pkcs8 -topk8`",
        ),
        (
            {
                "keystore_type": "PEM",
                "keystore_key": issued(HOST).key,
                "keystore_certificate_chain": issued(HOST).chain,
                "keystore_location": "/x",
            },
            "ssl.keystore.key and ssl.keystore.location are both set: set one of them",
        ),
        (
            {
                "keystore_type": "PEM",
                "keystore_key": encrypted(issued(HOST).key),
                "keystore_certificate_chain": issued(HOST).chain,
                "keystore_password": PASSWORD,
            },
            "ssl.keystore.password is set, and a keystore of the type PEM has none: the password of an encrypted key "
            "is ssl.key.password",
        ),
        ({"truststore_certificates": trusted()}, "ssl.truststore.type is JKS: set it to PEM"),
        (
            {"truststore_type": "PEM", "truststore_certificates": trusted(), "truststore_location": "/x"},
            "are both set: set one of them",
        ),
        (
            {"truststore_type": "PEM", "truststore_certificates": trusted().replace("MII", "NII")},
            "has a certificate that cannot be read (number 1)",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], reason: str) -> None:
    assert reason in refusal(**settings)


ONE = issued(HOST)


@pytest.mark.parametrize(
    ("key", "chain", "password", "reason"),
    [
        (ONE.key.replace("\n-----END", "A\n-----END"), ONE.chain, None, "ssl.keystore.key has PEM that is damaged"),
        (ONE.key.replace(" PRIVATE", " ENCRYPTED PRIVATE"), ONE.chain, "x", "that ssl.key.password does not open"),
        (encrypted(ONE.key).replace("ENCRYPTED ", ""), ONE.chain, None, "has a private key that cannot be read"),
        (changed(ONE.key, EC_KEY, NO_KEY), ONE.chain, None, "has a private key that cannot be read"),
        (ONE.key, changed(ONE.chain, EC_KEY, NO_KEY), None, "has a certificate whose key cannot be read"),
        (ONE.key, changed(ONE.chain, point_of(ONE.chain), b"\4" + bytes(64)), None, "whose key cannot be read"),
    ],
    ids=["not base64", "open, called encrypted", "encrypted, called open", "unknown key", "unknown public", "no point"],
)
def test_keys_that_cannot_be_read_are_refused(key: str, chain: str, password: str | None, reason: str) -> None:
    given = {"keystore_type": "PEM", "keystore_key": key, "keystore_certificate_chain": chain}
    assert reason in refusal(**given, **({} if password is None else {"key_password": password}))


def test_a_keystore_with_a_key_of_an_unknown_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_args: object) -> object:
        raise UnsupportedAlgorithm("Curve secp112r1 is not supported")

    monkeypatch.setattr(pkcs12, "load_pkcs12", lacking)
    path = tmp_path / "key.p12"
    path.write_bytes(b"0")
    message = refusal(keystore_location=str(path), keystore_password=PASSWORD)
    assert message.endswith("is no keystore of the type PKCS12, or it is damaged: Curve secp112r1 is not supported")


def test_a_path_that_no_file_can_have_is_refused() -> None:
    message = refusal(keystore_location="a\0b", keystore_password=PASSWORD)
    assert message.endswith("cannot be read: embedded null byte")


def test_a_file_that_is_replaced_or_changed_is_seen_to_be_another(tmp_path: Path) -> None:
    path = tmp_path / "a"
    settings = TlsSettings(keystore_location=str(path))
    seen = [file_states(settings)]
    path.write_text("x")
    seen.append(file_states(settings))
    path.write_text("xy")
    seen.append(file_states(settings))
    (tmp_path / "b").write_text("yx")
    (tmp_path / "b").rename(path)
    seen.append(file_states(settings))
    assert len(set(seen)) == 4


def test_secrets_are_not_in_the_text_of_settings() -> None:
    settings = TlsSettings(
        keystore_password="s3cret", keystore_key="s3cret", key_password="s3cret", truststore_password="s3cret"
    )
    assert "s3cret" not in repr(settings)
    assert "PRIVATE" not in repr(load_stores(attrs.evolve(_in_place(), truststore_type="PEM")))


def _in_place() -> TlsSettings:
    certificate = issued(HOST)
    return TlsSettings(keystore_type="PEM", keystore_key=certificate.key, keystore_certificate_chain=certificate.chain)
