"""Rows handed to a function in Spark's tasks, as Arrow batches: `DataFrame.mapInArrow` without pandas.

Spark 4.0 refuses mapInArrow if pandas is not installed, although neither the call nor the worker uses it. So this
module does what mapInArrow does after that check. It uses pyspark's internals, hence the limit on pyspark's version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

if TYPE_CHECKING:
    from pyarrow import RecordBatch


def map_in_arrow(
    rows: DataFrame, function: Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]], schema: str
) -> DataFrame:
    """The rows that `function` returns for each of Spark's partitions. `schema` is their schema as DDL.

    function: called once in each task; it is pickled.
    """
    made = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = made(*(rows[name] for name in rows.columns))
    mapped = rows._jdf.mapInArrow(column._jc, False, None)
    return DataFrame(mapped, rows.sparkSession)
