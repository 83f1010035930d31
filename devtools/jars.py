"""Named sets of Java archives, each file checked against `requirements/jars.txt`.

`requirements/jars.in` lists the sets and their coordinates. `python -m devtools.jars lock` resolves them with their
dependencies, and writes the coordinates and SHA-256 of every file to `requirements/jars.txt`.
`python -m devtools.jars fetch` downloads missing files; `jars()` does so too.

Ivy resolves. It is part of pyspark and has the address of Maven Central, so our files contain no address. A fetch
downloads exactly the files of the lock, without descriptors, to a temporary folder. A file is moved to the store only
if its hash is correct. Each process checks the store again at its first use.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import attrs

from devtools.java import java
from devtools.places import CACHE, REPOSITORY, exclusive

ROOTS = REPOSITORY / "requirements" / "jars.in"
LOCK = REPOSITORY / "requirements" / "jars.txt"
STORE = CACHE / "jars"

_PATTERN = "[organisation]/[artifact]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="{descriptors}"/></resolvers>
</ivysettings>
"""
_MODULE = """\
<ivy-module version="2.0" xmlns:maven="http://ant.apache.org/ivy/maven">
  <info organisation="kwire" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
    {conflicts}
  </dependencies>
</ivy-module>
"""
_DEPENDENCY = """\
    <dependency org="{0.group}" name="{0.artifact}" rev="{0.version}" conf="default->default" transitive="{1}">{2}\
</dependency>
"""
_ARTIFACT = '<artifact name="{0.artifact}" type="jar" ext="jar" {1}/>'
_KEEP_ALL = '<conflict manager="all"/>'
_ATTEMPTS = 3


class JarError(Exception):
    """A set that is unknown, a file that cannot be fetched, or one that differs from the lock."""


@attrs.frozen
class Coordinates:
    """`classifier` names another file of the same artifact, such as its tests."""

    group: str
    artifact: str
    version: str
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Coordinates:
        parts = text.split(":")
        if len(parts) not in (3, 4) or not all(parts):
            raise JarError(f"not group:artifact:version, nor group:artifact:version:classifier: {text!r}")
        return cls(*parts)

    @classmethod
    def at(cls, path: Path) -> Coordinates:
        """The coordinates of the file at `path` below a store."""
        group, artifact, version, name = path.parts
        return cls(group, artifact, version, name.removeprefix(f"{artifact}-{version}").removesuffix(".jar")[1:])

    @property
    def path(self) -> Path:
        """The path of the file below a store."""
        name = "-".join(filter(None, (self.artifact, self.version, self.classifier)))
        return Path(self.group, self.artifact, self.version, f"{name}.jar")

    def __str__(self) -> str:
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))


@attrs.frozen
class Locked:
    coordinates: Coordinates
    sha256: str


@cache
def jars(name: str) -> tuple[Path, ...]:
    """The files of a set, fetched if need be and checked."""
    return tuple(_ensure(_locked(name)))


def classpath(*names: str) -> str:
    """Returns one or several sets as a Java class path."""
    return os.pathsep.join(str(path) for name in names for path in jars(name))


def fetch_all() -> None:
    """Gets the files of every set in one go."""
    _ensure(list({entry for entries in _read_lock().values() for entry in entries}))


def compile_java(source: Path, classpath: str = "") -> Path:
    """Compiles one Java file, or a folder of them, and returns the folder of classes; compiled once per content."""
    files = sorted(source.rglob("*.java")) if source.is_dir() else [source]
    digest = hashlib.sha256(classpath.encode())
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    target = CACHE / "classes" / f"{source.stem}-{digest.hexdigest()[:16]}"
    with exclusive("classes"):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                output = Path(folder, "classes")
                command: list[str | Path] = [
                    java(),
                    "-jar",
                    *jars("ecj"),
                    "-source",
                    "17",
                    "-target",
                    "17",
                    "-encoding",
                    "UTF-8",
                ]
                command += ["-proc:none", "-nowarn", "-cp", classpath or folder, "-d", output, *files]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise JarError(f"{source} does not compile:\n{done.stdout}{done.stderr}")
                output.rename(target)
    return target


def _locked(name: str) -> list[Locked]:
    sets = _read_lock()
    if name not in sets:
        raise JarError(f"no set {name!r} in {LOCK.name}; there are {', '.join(sets)}")
    return sets[name]


def _sections(path: Path) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for raw in path.read_text(encoding="utf-8").splitlines():
        line = raw.partition("#")[0].strip()
        if header := re.fullmatch(r"\[(.+)\]", line):
            current = sections.setdefault(header[1], [])
        elif line:
            current.append(line)
    return sections


def _read_lock() -> dict[str, list[Locked]]:
    sets: dict[str, list[Locked]] = {}
    for name, lines in _sections(LOCK).items():
        sets[name] = []
        for line in lines:
            coordinates, _, digest = line.partition(" sha256:")
            sets[name].append(Locked(Coordinates.parse(coordinates), digest))
    return sets


def _ensure(wanted: Sequence[Locked]) -> list[Path]:
    if _missing(wanted):
        with exclusive("jars"):
            missing = _missing(wanted)  # another process may have fetched them while we waited
            if missing:
                _fetch(missing)
    return [STORE / entry.coordinates.path for entry in wanted]


def _missing(wanted: Sequence[Locked]) -> list[Locked]:
    return [entry for entry in wanted if _sha256(STORE / entry.coordinates.path) != entry.sha256]


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _fetch(missing: Sequence[Locked]) -> None:
    STORE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=STORE, prefix="fetch-") as folder:
        _run_ivy(Path(folder), [entry.coordinates for entry in missing], transitive=False)
        for entry in missing:
            path = entry.coordinates.path
            fetched = Path(folder, "files", path)
            got = _sha256(fetched)
            if got is None:
                raise JarError(f"{entry.coordinates} was not found")
            if got != entry.sha256:
                raise JarError(f"{entry.coordinates} is not what {LOCK.name} locked: its SHA-256 is {got}")
            (STORE / path).parent.mkdir(parents=True, exist_ok=True)
            fetched.replace(STORE / path)


def _run_ivy(folder: Path, wanted: Sequence[Coordinates], *, transitive: bool) -> None:
    """Resolves into `folder`/files. Without `transitive` the files are taken as named, without their descriptors."""
    follow = str(transitive).lower()
    # Ivy has a module once: several files of one are artifacts of the same dependency.
    modules: dict[Coordinates, list[Coordinates]] = {}
    for it in wanted:
        modules.setdefault(attrs.evolve(it, classifier=""), []).append(it)
    dependencies = "".join(_DEPENDENCY.format(it, follow, _artifacts(files)) for it, files in modules.items())
    settings, module = folder / "ivysettings.xml", folder / "ivy.xml"
    settings.write_text(_SETTINGS.format(descriptors=follow))
    module.write_text(_MODULE.format(dependencies=dependencies, conflicts="" if transitive else _KEEP_ALL))
    command: list[str | Path] = [java(), *_proxy_options(), f"-Divy.home={folder}", f"-Duser.home={folder}"]
    command += ["-jar", _ivy(), "-settings", settings, "-ivy", module, "-cache", folder / "cache", "-error"]
    command += ["-confs", "default", "-retrieve", f"{folder}/files/{_PATTERN}"]
    for attempt in range(1, _ATTEMPTS + 1):  # what one attempt got, the next finds in its cache
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        if attempt == _ATTEMPTS:
            raise JarError(f"Ivy could not resolve {', '.join(map(str, wanted))}:\n{done.stdout}{done.stderr}")


def _artifacts(files: Sequence[Coordinates]) -> str:
    """Returns the artifacts for Ivy; nothing if a module's own jar is all that is needed of it."""
    if not any(it.classifier for it in files):
        return ""
    return "".join(_ARTIFACT.format(it, f'maven:classifier="{it.classifier}"' if it.classifier else "") for it in files)


def _pyspark_jars() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarError("pyspark is not installed, and Ivy comes with it")
    return Path(spec.origin).parent / "jars"


def _ivy() -> Path:
    found = sorted(_pyspark_jars().glob("ivy-*.jar"))
    if not found:
        raise JarError("pyspark came without its Ivy")
    return found[-1]


def _proxy_options() -> list[str]:
    """Returns Java options for the proxy: Java does not read HTTPS_PROXY and its like; Python does."""
    options = []
    for scheme, address in urllib.request.getproxies().items():
        proxy = urllib.parse.urlsplit(address)
        if scheme in ("http", "https") and proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    return options


def write_lock() -> None:
    """Resolves every set of jars.in again and writes jars.txt; the files are stored as well."""
    shipped = {re.sub(r"-\d[^-]*\.jar$", "", path.name) for path in _pyspark_jars().glob("*.jar")}
    lines = ["# Written by `python -m devtools.jars lock` from jars.in."]
    for name, roots in _sections(ROOTS).items():
        without = {root.removeprefix("without ") for root in roots if root.startswith("without ")}
        without |= shipped if "pyspark" in without else set()
        wanted = [Coordinates.parse(root) for root in roots if not root.startswith("without ")]
        lines += ["", f"[{name}]"]
        STORE.mkdir(parents=True, exist_ok=True)
        with exclusive("jars"), tempfile.TemporaryDirectory(dir=STORE, prefix="lock-") as folder:
            _run_ivy(Path(folder), wanted, transitive=True)
            files = Path(folder, "files")
            for found in sorted(files.rglob("*.jar")):
                coordinates = Coordinates.at(found.relative_to(files))
                if coordinates.artifact in without:
                    continue
                lines.append(f"{coordinates} sha256:{_sha256(found)}")
                (STORE / coordinates.path).parent.mkdir(parents=True, exist_ok=True)
                shutil.move(found, STORE / coordinates.path)
    LOCK.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["lock"]:
            write_lock()
        case ["fetch"]:
            fetch_all()
        case ["path", *names]:
            print(classpath(*names))
        case _:
            sys.exit("usage: python -m devtools.jars lock | fetch | path SET...")
