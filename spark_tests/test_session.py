"""The tests' own file system leaves the same files as Hadoop's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def _at_work(spark: SparkSession, configuration: Any, folder: Path) -> Iterator[tuple[str, str]]:
    """Creates files, sets modes, replaces a file; yields the name of Hadoop's class, then each file with its mode."""
    java: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    hadoop = java.org.apache.hadoop.fs

    def at(name: str) -> Any:
        return hadoop.Path(str(folder / name))

    files = hadoop.FileSystem.newInstance(java.java.net.URI("file:///"), configuration)
    yield "class", files.getClass().getName()
    for name in ("made/deep/plain", "closed", "sticky", "first", "second"):
        files.create(at(name)).close()
    for name, mode in (("closed", "400"), ("sticky", "1750")):
        files.setPermission(at(name), hadoop.permission.FsPermission(mode))
    replacing = gateway.new_array(hadoop.Options.Rename, 1)
    replacing[0] = hadoop.Options.Rename.OVERWRITE
    hadoop.FileContext.getFileContext(configuration).rename(at("first"), at("second"), replacing)
    for path in sorted(folder.rglob("*")):
        yield str(path.relative_to(folder)), oct(path.stat().st_mode)


def test_the_tests_file_system_leaves_the_files_that_hadoops_own_leaves(spark: SparkSession, tmp_path: Path) -> None:
    java: Any = spark._jvm
    of_session = spark.sparkContext._jsc.hadoopConfiguration()
    ours = dict(_at_work(spark, of_session, tmp_path / "ours"))
    theirs = dict(_at_work(spark, java.org.apache.hadoop.conf.Configuration(), tmp_path / "theirs"))
    assert ours.pop("class") == "LocalFiles"
    assert theirs.pop("class").startswith("org.apache.hadoop.")
    assert ours == theirs
    assert ours["sticky"] == "0o101750", ours
    assert "first" not in ours
