"""A Java is found wherever the machine has one, and brought where it has none."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools import java
from devtools.jars import classpath, compile_java

PROGRAM = """
import java.security.KeyStore;

public class Trusted {
    public static void main(String[] args) throws Exception {
        KeyStore store = KeyStore.getInstance(new java.io.File(args[0]), (char[]) null);
        System.out.println(store.size() + " " + store.isCertificateEntry("authority-0"));
    }
}
"""


def version_of(home: Path) -> str:
    done = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, check=True)
    return done.stderr


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], Path]:
    """Looks for a Java on a machine that has none, with an empty home folder."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    return java.java.__wrapped__


def test_without_java_the_packaged_one_is_taken(no_java: Callable[[], Path]) -> None:
    assert "21." in version_of(no_java().parent.parent)


def test_the_packaged_java_is_started_without_the_module_it_lacks(no_java: Callable[[], Path]) -> None:
    command: list[str | Path] = [
        no_java(),
        "-Da=b c",
        "--add-modules=jdk.incubator.vector",
        "-XshowSettings:properties",
        "-version",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "a = b c" in done.stderr


def test_the_packaged_java_trusts_what_python_trusts(no_java: Callable[[], Path]) -> None:
    done = subprocess.run(
        [no_java(), "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=True
    )
    known = ssl.get_default_verify_paths()
    assert ("javax.net.ssl.trustStore = " in done.stderr) == bool(known.cafile or known.capath)


def test_a_java_that_does_not_fit_is_passed_over(
    no_java: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = tmp_path / "jdk8" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho '    java.specification.version = 1.8' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(old.parent.parent))
    assert "21." in version_of(no_java().parent.parent)


def test_a_key_store_of_our_making_is_one_that_java_reads(tmp_path: Path) -> None:
    certificates = java._machine_certificates()[:3]
    store = tmp_path / "store.jks"
    store.write_bytes(java.key_store(certificates, now_ms=1_700_000_000_000))
    source = tmp_path / "Trusted.java"
    source.write_text(PROGRAM)
    classes = compile_java(source, classpath())
    done = subprocess.run([java.java(), "-cp", classes, "Trusted", store], capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(certificates)} {str(bool(certificates)).lower()}\n"
