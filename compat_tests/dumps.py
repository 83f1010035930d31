"""Apache Kafka's DumpLogSegments as the judge of files: of some, or of all that a data folder has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from . import java_host
from .java_host import JavaHost

_COMPLAINTS = re.compile(
    r"mismatch|Non-consecutive|isvalid: false|Exception|corrupt|not (?:valid|found)", re.IGNORECASE
)
# The tool takes -1 for the offset before each file, and so finds a gap before every segment but the first.
_OF_EVERY_LATER_SEGMENT = re.compile(r"Non-consecutive offsets in .*\n +-1 is followed by \d+\n")
_FILES_AT_ONCE = 500


def dump(java: JavaHost, files: Sequence[Path], *options: str) -> str:
    """What the tool says; fails on any complaint."""
    said = java.succeed(java_host.DUMP_LOG, "--files", ",".join(map(str, files)), *options)
    text = _OF_EVERY_LATER_SEGMENT.sub("", said.out + said.err)
    complaint = _COMPLAINTS.search(text)
    assert complaint is None, text[max(0, complaint.start() - 200) :][:1_000]
    return said.out


def assert_kafka_is_content(java: JavaHost, data_dir: Path, *, after_a_crash: bool = False) -> int:
    """Has every file of every partition read: records one by one, indexes, aborted transactions, producers.

    Nobody may be writing to them. Returns how many files were read. After a clean stop every segment has its indexes;
    `after_a_crash` the last one has what it had at its last opening, from which recovery makes them anew.
    """
    folders = sorted(path for path in data_dir.iterdir() if path.is_dir() and re.search(r"-\d+$", path.name))
    assert folders, f"no partitions in {data_dir}"
    logs = [log for folder in folders for log in sorted(folder.glob("*.log"))]
    indexes = [
        index
        for folder in folders
        for log in sorted(folder.glob("*.log"))[: -1 if after_a_crash else None]
        for index in (log.with_suffix(".index"), log.with_suffix(".timeindex"))
    ]
    missing = [str(index.relative_to(data_dir)) for index in indexes if not index.exists()]
    assert not missing, f"no {', '.join(missing)}"
    _all(java, logs, "--deep-iteration")
    said = _all(java, indexes, "--index-sanity-check")
    assert said.count("passed sanity check.") + said.count(" is empty.") == len(indexes), said[-1000:]
    _all(java, indexes, "--verify-index-only")
    others = [path for folder in folders for ending in ("txnindex", "snapshot") for path in folder.glob(f"*.{ending}")]
    _all(java, others)
    return len(logs) + len(indexes) + len(others)


def _all(java: JavaHost, files: Iterable[Path], *options: str) -> str:
    listed = list(files)
    parts = [listed[at : at + _FILES_AT_ONCE] for at in range(0, len(listed), _FILES_AT_ONCE)]
    return "".join(dump(java, part, *options) for part in parts)
