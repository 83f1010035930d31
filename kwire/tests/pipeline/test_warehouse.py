"""The places of tables: folders and catalogs, in Spark's words and in pyiceberg's."""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from kwire.pipeline import warehouse as module
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.warehouse import NotReadable, call_catalog, errors_table_name, parse_warehouse, table_name

REST = {"spark.sql.catalog.prod": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.prod.type": "rest"}


def test_a_folder_is_one_catalog_for_spark_and_for_pyiceberg(tmp_path: Path) -> None:
    found = parse_warehouse(str(tmp_path / "new" / "w"), {"spark.sql.catalog.kwire.x": "not ours"})
    assert not found.exists()
    found.make()
    with found.pyiceberg_catalog() as catalog:
        assert catalog.list_namespaces() == []
    assert found.exists()
    settings = found.spark_settings
    assert str(tmp_path / "new" / "w" / "catalog.db") in settings["spark.sql.catalog.kwire.uri"]
    assert settings["spark.sql.catalog.kwire.warehouse"] == (tmp_path / "new" / "w").as_uri()
    assert "spark.sql.catalog.kwire.x" not in settings
    assert found.spark_name("orders") == "`kwire`.`kwire`.`orders`"
    assert str(found) == str(tmp_path / "new" / "w")


def test_a_relative_folder_and_one_of_the_users_home_are_made_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_warehouse("w", {}).folder == tmp_path / "w"
    assert parse_warehouse("~/w", {}).folder == tmp_path / "w"
    assert parse_warehouse(f"file://{tmp_path}/w", {}).folder == tmp_path / "w"


def test_a_catalog_is_as_configured() -> None:
    settings = {**REST, "spark.sql.catalog.production.type": "hive", "spark.executor.memory": "2g"}
    found = parse_warehouse("catalog:prod", settings)
    assert found.spark_settings == REST
    assert found.spark_name("orders") == "`prod`.`kwire`.`orders`"
    assert found.exists()
    assert str(found) == "catalog:prod"
    found.check()
    found.make()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("catalog:test", "give --conf spark.sql.catalog.test="),
        ("catalog:", "is not configured"),
        ("s3://bucket/w", "Tables elsewhere need a catalog"),
        ("hdfs://host/w", "Tables elsewhere need a catalog"),
        ("a?b", "may not hold any of"),
        ("a#b", "may not hold any of"),
        ("a%20b", "may not hold any of"),
        ("", "no folder is named"),
    ],
)
def test_what_is_no_warehouse_is_one_line(text: str, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        parse_warehouse(text, REST)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_no_warehouse(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(PipelineError, match="is a file; a warehouse is a folder"):
        parse_warehouse(str(file), {})
    below = parse_warehouse(str(file / "w"), {})
    with pytest.raises(PipelineError, match=r"file is a file"):
        below.check()
    with pytest.raises(PipelineError, match="cannot be written: Not a directory"):
        below.make()


def test_a_folder_that_is_not_ours_is_refused_before_and_when_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = parse_warehouse(str(tmp_path / "w"), {})
    found.check()
    assert not (tmp_path / "w").exists(), "a check makes nothing"

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may do all
    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(PipelineError, match="is not yours to write to"):
        found.check()
    with pytest.raises(PipelineError, match="cannot be written: Permission denied"):
        found.make()


def test_those_who_open_a_new_warehouse_at_once_all_find_its_catalog(tmp_path: Path) -> None:
    openers = 6

    def open_it(folder: Path, start: threading.Barrier) -> list[tuple[str, ...]]:
        start.wait()
        with parse_warehouse(str(folder), {}).pyiceberg_catalog() as catalog:
            return list(catalog.list_namespaces())

    with ThreadPoolExecutor(openers) as threads:
        for attempt in range(10):
            folder = tmp_path / str(attempt)
            folder.mkdir()
            start = threading.Barrier(openers)
            answers = [threads.submit(open_it, folder, start) for _ in range(openers)]
            assert [it.result() for it in answers] == [[]] * openers


def test_a_catalog_is_there_before_anything_looks_for_it(tmp_path: Path) -> None:
    found = parse_warehouse(str(tmp_path / "w"), {})
    found.make()
    found.make()
    with closing(sqlite3.connect(tmp_path / "w" / "catalog.db")) as catalog:
        tables = catalog.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    assert tables == [("iceberg_namespace_properties",), ("iceberg_tables",)]


def test_a_catalog_file_that_is_something_else_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(PipelineError, match="not a database") as caught:
        parse_warehouse(str(tmp_path), {}).pyiceberg_catalog()
    assert "\n" not in str(caught.value)


def test_a_catalog_that_nobody_serves_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = parse_warehouse("catalog:prod", {**REST, "spark.sql.catalog.prod.uri": f"http://127.0.0.1:{port}"})
    with pytest.raises(PipelineError, match="catalog:prod cannot be read: ") as caught:
        found.pyiceberg_catalog()
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, NotReadable)


def test_a_catalog_that_never_answers_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ANSWERS_WITHIN_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = parse_warehouse("catalog:prod", {**REST, "spark.sql.catalog.prod.uri": f"http://127.0.0.1:{port}"})
        with pytest.raises(PipelineError, match=r"catalog:prod: no answer within 0\.3 s"):
            found.pyiceberg_catalog()


@pytest.mark.parametrize("kind", ["hadoop", "nonsense"])
def test_a_catalog_that_only_spark_can_open_is_not_reported_as_broken(kind: str) -> None:
    found = parse_warehouse("catalog:prod", {**REST, "spark.sql.catalog.prod.type": kind})
    with pytest.raises(NotReadable, match="cannot be opened without Spark"):
        found.pyiceberg_catalog()


def test_a_call_returns_or_raises_in_the_thread_that_made_it() -> None:
    assert call_catalog(lambda: 7, "the table") == 7
    with pytest.raises(PipelineError, match="^the table cannot be read: no such luck$"):
        call_catalog(_unlucky, "the table")


def _unlucky() -> int:
    raise OSError("no such luck\nat all")


def test_names() -> None:
    assert table_name("a.b-c") == "a_b_c"
    assert errors_table_name("a") == "a__errors"
