"""The cost of a process's tasks: unchanged archives are not read, and modules are no garbage."""

from __future__ import annotations

import gc
import zipfile
import zipimport
from pathlib import Path
from types import SimpleNamespace

import pytest

from kwire.pipeline.spark_source import light_tasks


def write(path: Path, *names: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(f"{name}.py", "")


def test_an_archive_is_read_again_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.zip"
    write(path, "one")
    importer = SimpleNamespace(archive=str(path))
    read: list[str] = []
    monkeypatch.setattr(light_tasks, "_read_again", lambda it: read.append(it.archive))
    for names in ([], [], ["one", "two"], []):
        if names:
            write(path, *names)
        light_tasks._invalidate_caches(importer)
    assert len(read) == 2
    path.unlink()
    light_tasks._invalidate_caches(importer)
    light_tasks._invalidate_caches(importer)
    assert len(read) == 4  # so that Python finds out by itself


def test_a_python_that_waits_until_it_is_needed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = zipimport.zipimporter.invalidate_caches
    monkeypatch.setattr(light_tasks, "_is_lazy", True)
    light_tasks.spare_reading_archives()
    assert zipimport.zipimporter.invalidate_caches is before


def test_what_is_there_at_the_second_task_is_looked_at_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(light_tasks, "_task_counts", [0])
    monkeypatch.setattr(light_tasks, "_is_lazy", True)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(light_tasks._task_counts[0]))
    for _ in range(4):
        light_tasks.begin_task()
    assert frozen == [2]
