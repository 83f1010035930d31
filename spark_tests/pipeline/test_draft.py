"""A table's next snapshot: a compare-and-set, with other writers beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import attrs
import pytest
from pyspark.sql import SparkSession

from kwire.pipeline.tables.draft import Head, Table
from kwire.pipeline.tables.position import PROPERTY, Position
from kwire.pipeline.tables.table_state import table_state
from kwire.pipeline.warehouse import NAMESPACE, Warehouse

pytestmark = pytest.mark.more

WRITERS, COMMITS = 4, 6


def _new_table(spark: SparkSession, warehouse: Warehouse, name: str) -> str:
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS `{warehouse.catalog}`.`{NAMESPACE}`")
    full = warehouse.spark_name(name)
    spark.sql(f"CREATE TABLE {full} (n BIGINT) USING iceberg")
    return full


def _position(offset: int) -> Position:
    return Position("cluster", "topic", "id", {0: offset})


def _summary(offset: int) -> dict[str, str]:
    return {PROPERTY: _position(offset).to_json()}


def test_writers_side_by_side_never_build_on_the_same_snapshot(
    spark: SparkSession, warehouse: Warehouse, unique: Callable[[str], str]
) -> None:
    """Each commit adds the number that it found and counts on by one, as fast as it can: none is doubled or lost."""
    name = _new_table(spark, warehouse, unique("t").replace("-", "_"))
    first = Table(spark, name, run_id="first")
    first.commit_first(_summary(0))
    failures: list[BaseException] = []

    def count(number: int) -> None:
        table = Table(spark, name, run_id=f"writer{number}")

        def write(head: Head) -> None:
            assert head.position is not None
            at = head.position.offsets[0]
            table.append(spark.sql(f"SELECT CAST({at} AS BIGINT) AS n"), _summary(at + 1))

        try:
            for _ in range(COMMITS):
                table.commit(write, with_position=True)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=count, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert first.head().position == _position(WRITERS * COMMITS)
    assert sorted(row.n for row in spark.table(name).collect()) == list(range(WRITERS * COMMITS))


def test_the_offsets_outlive_compactions_and_the_expiry_of_all_that_may_go(
    spark: SparkSession, warehouse: Warehouse, unique: Callable[[str], str]
) -> None:
    name = _new_table(spark, warehouse, unique("t").replace("-", "_"))
    table = Table(spark, name, run_id="run")
    table.commit_first(_summary(0))
    for n in range(3):
        rows = spark.sql(f"SELECT CAST({n} AS BIGINT) AS n")
        table.commit(lambda _, rows=rows, n=n: table.append(rows, _summary(n + 1)), with_position=True)  # type: ignore[misc]
    table.drop_draft()
    plain = name.replace("`", "")
    system = f"{warehouse.catalog}.system"
    for _ in range(2):
        spark.sql(f"CALL {system}.rewrite_data_files(table => '{plain}', options => map('rewrite-all', 'true'))")
    spark.sql(f"CALL {system}.expire_snapshots(table => '{plain}', older_than => now(), retain_last => 1)")

    assert Table(spark, name, run_id="next").head().position == _position(3)
    assert table_state(warehouse, plain.split(".")[-1]).position == _position(3)  # type: ignore[union-attr]
    assert spark.table(name).count() == 3


def test_a_table_that_was_rolled_back_is_where_its_rows_are(
    spark: SparkSession, warehouse: Warehouse, unique: Callable[[str], str]
) -> None:
    name = _new_table(spark, warehouse, unique("t").replace("-", "_"))
    table = Table(spark, name, run_id="run")
    table.commit_first(_summary(0))
    heads = []
    for n in range(2):
        rows = spark.sql(f"SELECT CAST({n} AS BIGINT) AS n")
        table.commit(lambda _, rows=rows, n=n: table.append(rows, _summary(n + 1)), with_position=True)  # type: ignore[misc]
        heads.append(table.head())
    plain = name.replace("`", "")
    spark.sql(f"CALL {warehouse.catalog}.system.rollback_to_snapshot('{plain}', {heads[0].snapshot_id})")

    assert table.head() == attrs.evolve(heads[0])
