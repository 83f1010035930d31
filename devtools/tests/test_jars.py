"""A file is in the store only if its hash is that of the lock."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from devtools import jars
from devtools.jars import Coordinates, JarError

GOOD = b"what was locked"


class Repository:
    """Stands for Ivy and the repository behind it."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.fetched: list[str] = []

    def run_ivy(self, folder: Path, wanted: Sequence[Coordinates], *, transitive: bool) -> None:
        assert not transitive
        for coordinates in wanted:
            self.fetched.append(str(coordinates))
            if self.content is not None:
                path = folder / "files" / coordinates.path
                path.parent.mkdir(parents=True)
                path.write_bytes(self.content)


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Repository:
    lock = tmp_path / "jars.txt"
    lock.write_text(f"# a lock\n[one]\norg.example:thing:1.0 sha256:{hashlib.sha256(GOOD).hexdigest()}\n")
    monkeypatch.setattr(jars, "LOCK", lock)
    monkeypatch.setattr(jars, "STORE", tmp_path / "store")
    fake = Repository(GOOD)
    monkeypatch.setattr(jars, "_run_ivy", fake.run_ivy)
    jars.jars.cache_clear()
    return fake


def test_a_missing_file_is_fetched_once(repository: Repository, tmp_path: Path) -> None:
    expected = tmp_path / "store" / "org.example" / "thing" / "1.0" / "thing-1.0.jar"
    assert jars.jars("one") == (expected,)
    assert expected.read_bytes() == GOOD
    jars.jars.cache_clear()
    assert jars.classpath("one") == str(expected)
    assert repository.fetched == ["org.example:thing:1.0"]
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["org.example"]


def test_a_damaged_file_is_fetched_again(repository: Repository) -> None:
    (path,) = jars.jars("one")
    path.write_bytes(b"what was loc")
    jars.jars.cache_clear()
    jars.jars("one")
    assert path.read_bytes() == GOOD


def test_a_file_that_is_not_what_was_locked_never_enters_the_store(repository: Repository, tmp_path: Path) -> None:
    repository.content = b"something else"
    with pytest.raises(JarError, match="org.example:thing:1.0 is not what jars.txt locked"):
        jars.jars("one")
    assert not list((tmp_path / "store").rglob("*.jar"))


def test_a_file_that_cannot_be_had_is_named(repository: Repository) -> None:
    repository.content = None
    with pytest.raises(JarError, match="org.example:thing:1.0 was not found"):
        jars.jars("one")


def test_an_unknown_set_is_named_beside_those_there_are(repository: Repository) -> None:
    with pytest.raises(JarError, match="no set 'two' in jars.txt; there are one"):
        jars.jars("two")


def test_the_lock_holds_every_set_and_every_root_of_the_list() -> None:
    locked = {name: {str(entry.coordinates) for entry in entries} for name, entries in jars._read_lock().items()}
    for name, roots in jars._sections(jars.ROOTS).items():
        assert {root for root in roots if not root.startswith("without ")} <= locked[name]


def test_java_that_does_not_compile_is_quoted(tmp_path: Path) -> None:
    source = tmp_path / "Broken.java"
    source.write_text("class Broken { int x = nonsense; }")
    with pytest.raises(JarError, match="nonsense cannot be resolved"):
        jars.compile_java(source)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("org.example:a-thing:1.0", "org.example/a-thing/1.0/a-thing-1.0.jar"),
        ("org.example:a-thing:1.0:tests", "org.example/a-thing/1.0/a-thing-1.0-tests.jar"),
    ],
)
def test_a_file_is_named_by_its_coordinates_and_the_other_way_round(text: str, path: str) -> None:
    coordinates = Coordinates.parse(text)
    assert (str(coordinates), coordinates.path) == (text, Path(path))
    assert Coordinates.at(Path(path)) == coordinates


@pytest.mark.parametrize("text", ["org.example:thing", "org.example:thing:1.0:tests:more", "org.example::1.0"])
def test_what_is_no_coordinates_is_refused(text: str) -> None:
    with pytest.raises(JarError, match="not group:artifact:version"):
        Coordinates.parse(text)
