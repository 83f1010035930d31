"""The location of tables: a folder, or a catalog that Spark's configuration describes.

A folder needs no service: its catalog is one SQLite file beside the tables, `catalog.db`. Spark opens it with Iceberg's
JDBC catalog, pyiceberg with its SqlCatalog; both see the same tables. Any other catalog (REST, Glue, Hive, ...) is
configured as for Spark, `spark.sql.catalog.NAME.type=rest` and so on, and named as `catalog:NAME`. pyiceberg has nearly
all of these settings under the same names.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from kwire.pipeline.errors import PipelineError, first_line

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

CATALOG: Final = "kwire"
"""The catalog name of a folder, in Spark and in pyiceberg: it is a column of the catalog's own tables."""
NAMESPACE: Final = "kwire"
ERRORS_SUFFIX: Final = "__errors"
INDEX_SUFFIX: Final = "__index"

_SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_PREFIX = "spark.sql.catalog."
_BUSY_MS = 30_000
_NOT_IN_PATHS = frozenset("?#%")
_ANSWERS_WITHIN_S = 60.0

T = TypeVar("T")


class NotReadable(PipelineError):
    """A catalog that pyiceberg cannot open on this machine. Spark may be able to open it."""


@attrs.frozen
class Warehouse:
    """`folder` is None if the catalog is configured by `settings`, which are Spark's."""

    catalog: str
    folder: Path | None
    settings: Mapping[str, str]

    @property
    def spark_settings(self) -> dict[str, str]:
        """The settings with which Spark finds the tables."""
        prefix = f"{_PREFIX}{self.catalog}"
        if self.folder is None:
            return {name: value for name, value in self.settings.items() if _is_of(name, prefix)}
        return {
            prefix: _SPARK_CATALOG,
            f"{prefix}.type": "jdbc",
            # Readers continue while a commit is written, and two writers wait for each other.
            f"{prefix}.uri": f"jdbc:sqlite:{self.folder / 'catalog.db'}?journal_mode=WAL&busy_timeout={_BUSY_MS}",
            f"{prefix}.jdbc.schema-version": "V1",
            f"{prefix}.warehouse": self.folder.as_uri(),
            # A table is looked up again each time, because others write it too.
            f"{prefix}.cache-enabled": "false",
        }

    def pyiceberg_catalog(self) -> Catalog:
        """The same catalog without Spark. Raises PipelineError; NotReadable if the catalog itself is not at fault.

        The folder of a warehouse has to exist. Its catalog is created if needed.
        """
        from pyiceberg.catalog import load_catalog

        if self.folder is None:
            prefix = f"{_PREFIX}{self.catalog}."
            given = {
                name.removeprefix(prefix): value for name, value in self.settings.items() if name.startswith(prefix)
            }
            settings = {name: value for name, value in given.items() if name != "catalog-impl"}
        else:
            settings = {
                "type": "sql",
                "uri": _uri(self.folder),
                "warehouse": self.folder.as_uri(),
            }

        def load() -> Catalog:
            if self.folder is not None:
                _create_tables(settings["uri"])
            try:
                return load_catalog(self.catalog, **settings)
            except (ImportError, ValueError) as error:
                raise NotReadable(f"{self} cannot be opened without Spark: {first_line(error)}") from None

        return call_catalog(load, str(self))

    def check(self) -> None:
        """Raises PipelineError if the folder cannot hold tables, as far as a check without creating it shows."""
        if self.folder is None:
            return
        there = next(it for it in (self.folder, *self.folder.parents) if it.exists())
        if not there.is_dir():
            raise PipelineError(f"the warehouse {self.folder} cannot be made: {there} is a file. Name another folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise PipelineError(f"the warehouse {self.folder} cannot be written: {there} is not yours to write to")

    def make(self) -> None:
        """Creates the folder and its catalog if they do not exist, and tests them. Raises PipelineError."""
        folder = self.folder
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise PipelineError(
                f"the warehouse {folder} cannot be written: {error.strerror}. Name another folder (--to), or "
                "make this one yours"
            ) from None
        call_catalog(lambda: _create_tables(_uri(folder)), str(self))

    def exists(self) -> bool:
        """Returns True if anything was ever written. A configured catalog counts as existing."""
        return self.folder is None or (self.folder / "catalog.db").exists()

    def spark_name(self, table: str, namespace: str = NAMESPACE) -> str:
        """Returns the name of a table in Spark's SQL."""
        return ".".join(f"`{part}`" for part in (self.catalog, namespace, table))

    def __str__(self) -> str:
        return str(self.folder) if self.folder is not None else f"catalog:{self.catalog}"


def parse_warehouse(text: str, settings: Mapping[str, str]) -> Warehouse:
    """A folder's path, or catalog:NAME of one that `settings` (Spark's) describe. Raises PipelineError."""
    if text.startswith("catalog:"):
        name = text.removeprefix("catalog:")
        if f"{_PREFIX}{name}" not in settings:
            raise PipelineError(
                f"{text} is not configured: give --conf {_PREFIX}{name}={_SPARK_CATALOG} and "
                f"--conf {_PREFIX}{name}.type=rest (or hive, glue, jdbc), with its uri and warehouse"
            )
        return Warehouse(name, None, dict(settings))
    if re.match(r"[a-z][a-z0-9+.-]*://", text) and not text.startswith("file://"):
        raise PipelineError(
            f"{text} is no folder of this machine. Tables elsewhere need a catalog: configure one with --conf and "
            "name it, --to catalog:NAME"
        )
    if not text:
        raise PipelineError("no folder is named: --to FOLDER, or --to catalog:NAME")
    folder = Path(text.removeprefix("file://")).expanduser().absolute()
    if _NOT_IN_PATHS.intersection(str(folder)):
        raise PipelineError(f"the path of a warehouse may not hold any of ? # %: {folder}")
    if folder.exists() and not folder.is_dir():
        raise PipelineError(f"{folder} is a file; a warehouse is a folder")
    return Warehouse(CATALOG, folder, {})


def table_name(topic: str) -> str:
    """The table of a topic. Characters that SQL does not allow in a name become underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", topic)


def errors_table_name(table: str) -> str:
    return f"{table}{ERRORS_SUFFIX}"


def index_table_name(table: str) -> str:
    """The name of the index by field of a topic's table."""
    return f"{table}{INDEX_SUFFIX}"


def call_catalog(call: Callable[[], T], name: str) -> T:
    """Returns the result of a call to a catalog's library. Raises PipelineError on errors, and if no result comes.

    These libraries have no timeout of their own. A call without a result is left in its thread.
    """
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # a catalog's own library may raise anything
            errors.append(error)

    thread = threading.Thread(target=run, name="kwire-catalog", daemon=True)
    thread.start()
    thread.join(_ANSWERS_WITHIN_S)
    if results:
        return results[0]
    if not errors:
        raise PipelineError(f"{name}: no answer within {_ANSWERS_WITHIN_S:g} s. Is its uri right, and its service up?")
    if isinstance(errors[0], PipelineError):
        raise errors[0]
    raise PipelineError(f"{name} cannot be read: {first_line(errors[0])}")


def _uri(folder: Path) -> str:
    return f"sqlite:///{folder / 'catalog.db'}?timeout={_BUSY_MS // 1000}"


def _create_tables(uri: str) -> None:
    """Creates the tables of a folder's catalog if they do not exist.

    pyiceberg and Spark both look for them first, and create the missing ones. If a job and a reader started together,
    both would find none, and the slower one would fail. So kwire creates them first, in atomic SQLite statements.
    """
    from pyiceberg.catalog.sql import SqlCatalogBaseTable
    from sqlalchemy import create_engine
    from sqlalchemy.schema import CreateTable

    engine = create_engine(uri)
    try:
        with engine.begin() as connection:
            for table in SqlCatalogBaseTable.metadata.sorted_tables:
                connection.execute(CreateTable(table, if_not_exists=True))
    finally:
        engine.dispose()


def _is_of(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")
