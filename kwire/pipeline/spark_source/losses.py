"""Offsets that a stream can no longer read: found by comparing its position with the partitions' offsets. Pure.

Spark's Kafka connector makes the same check, with the same words: "some data may have been missed". The option
`failOnDataLoss` decides whether a loss ends the query.
"""

from __future__ import annotations

from kwire.pipeline.spark_source.positions import Positions, listed

ADVICE = (
    "some data may have been missed, because it is not there any more: it aged out, or the topic was deleted before "
    "all of it was read. To continue without it, set the option failOnDataLoss to false"
)


def losses(start: Positions, end: Positions, first_of_new: Positions) -> list[str]:
    """Returns the losses between two positions of a query, one clause for each.

    first_of_new: the first offsets of those partitions that are only in `end` and exist.
    """
    found = []
    gone = start.keys() - end.keys()
    if gone:
        found.append(f"{listed(gone)}: deleted")
    vanished = end.keys() - start.keys() - first_of_new.keys()
    if vanished:
        found.append(f"{listed(vanished)}: new, and gone again")
    for at, first in sorted(first_of_new.items()):
        if first > 0:
            found.append(f"{at}: new, and its offsets 0 to {first - 1} are gone")
    for at, stop in sorted(end.items()):
        begin = start.get(at, 0)
        if stop < begin:
            found.append(f"{at}: its end has moved back from {begin} to {stop}")
    return found


def described(found: list[str]) -> str:
    """Returns the losses as one line for an error."""
    return f"{'; '.join(found)}; {ADVICE}"
