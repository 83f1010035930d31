"""Checks before a Spark session starts: the Java that it runs on, and the session's settings."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kwire.pipeline import session
from kwire.pipeline.errors import PipelineError, first_line
from kwire.pipeline.session import PACKAGES, check_java, settings

FakeJava = Callable[[str], Path]


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJava:
    """Puts a `java` on PATH, alone there, which is this shell script; JAVA_HOME is not set."""

    def put(script: str) -> Path:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!{os.path.realpath('/bin/sh')}\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        return program

    return put


def java_of(version: str) -> str:
    return f"echo '    java.specification.version = {version}' >&2; echo '    java.vendor = somebody' >&2"


@pytest.mark.parametrize("version", ["17", "21", "23"])
def test_a_java_that_spark_runs_on_will_do(fake_java: FakeJava, version: str) -> None:
    fake_java(java_of(version))
    check_java()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (java_of("11"), "is Java 11: Spark needs Java 17 to 23"),
        (java_of("1.8"), "is Java 8: Spark needs Java 17 to 23"),
        (java_of("24"), "is Java 24: Spark needs Java 17 to 23"),
        ("echo nonsense >&2", "is of a version that it does not print"),
        ("exit 1", "does not run"),
        ("kill -9 $$", "does not run"),
    ],
)
def test_another_java_is_one_line_that_names_it(fake_java: FakeJava, script: str, message: str) -> None:
    program = fake_java(script)
    with pytest.raises(PipelineError) as caught:
        check_java()
    assert message in str(caught.value)
    assert str(program) in str(caught.value)
    assert "JAVA_HOME" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_java_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_java: FakeJava) -> None:
    program = fake_java(java_of("17"))
    program.chmod(0o644)
    with pytest.raises(PipelineError, match="java not found: Spark needs Java 17 to 23"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(PipelineError, match="nowhere/bin/java does not run"):
        check_java()


def test_a_java_that_hangs_is_one_line(fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java("exec /bin/sleep 60")
    monkeypatch.setattr(session, "_JAVA_ANSWERS_WITHIN_S", 0.3)
    with pytest.raises(PipelineError, match="does not run"):
        check_java()


def test_what_the_user_gives_wins_and_jars_are_fetched_only_if_none_are_named() -> None:
    found = settings({}, master=None, name="n")
    assert found["spark.master"] == "local[*]"
    assert found["spark.jars.packages"] == ",".join(PACKAGES)
    assert found["spark.driver.host"] == "127.0.0.1"

    found = settings({"spark.jars": "a.jar", "spark.ui.enabled": "true"}, master="spark://host:7077", name="n")
    assert "spark.jars.packages" not in found
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.master"] == "spark://host:7077"
    assert "spark.driver.host" not in found


def test_under_spark_submit_the_master_and_the_jars_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    found = settings({}, master=None, name="n")
    assert not {"spark.master", "spark.jars.packages", "spark.driver.host"} & set(found)
    assert "spark.sql.extensions" in found
    with pytest.raises(PipelineError, match="give it --master local, before the program"):
        settings({}, master="local", name="n")


def test_what_is_started_with_spark_writes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with session._java_on_standard_error():
        subprocess.run(["echo", "Java's"], check=True)
    subprocess.run(["echo", "the command's"], check=True)
    assert capfd.readouterr() == ("the command's\n", "Java's\n")


class _OfJava:
    def getMessage(self) -> str | None:  # noqa: N802 # as Java calls it
        return None

    def toString(self) -> str:  # noqa: N802
        return "java.lang.NullPointerException\n\tat here"


def test_an_error_is_shown_in_a_line_and_javas_errors_in_javas_words() -> None:
    assert first_line(OSError("one\ntwo")) == "one"
    assert first_line(ValueError("\n  two \n")) == "two"
    assert first_line(ValueError()) == "ValueError"
    error = RuntimeError("An error occurred while calling o7.start")
    error.java_exception = _OfJava()  # type: ignore[attr-defined]
    assert first_line(error) == "java.lang.NullPointerException"
