"""Apache Kafka's DumpLogSegments as the judge of files: of some, or of all that a log dir has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from testkit.java import java_host
from testkit.java.java_host import JavaHost

_COMPLAINTS = re.compile(
    r"mismatch|isvalid: false|invalid bytes|out of order|Exception|corrupt|not (?:valid|found)", re.IGNORECASE
)
_FILES_AT_ONCE = 500

# A log's folder, or that of a copy that is on its way from another log dir.
_OF_A_LOG = re.compile(r"(.+)-\d+(?:\.[0-9a-f]{32}-future)?")
_GAPS = re.compile(r"Non-consecutive offsets in (.*)\n((?: +-?\d+ is followed by \d+\n)+)")
# The tool takes -1 for the offset before each file, and so finds a gap before every segment but the first.
_BEFORE_A_SEGMENT = re.compile(r" +-1 is followed by \d+\n")


def dump(java: JavaHost, files: Sequence[Path], *options: str, with_gaps: Collection[str] = ()) -> str:
    """Returns the output of the tool, and fails on any complaint. In the logs of the topics `with_gaps` offsets may be
    missing.
    """
    result = java.succeed(java_host.DUMP_LOG, "--files", ",".join(map(str, files)), *options)
    text = result.out + result.err
    for log, gaps in _GAPS.findall(text):
        missing = _BEFORE_A_SEGMENT.sub("", gaps)
        assert not missing or topic_of(Path(log).parent) in with_gaps, f"offsets are missing in {log}:\n{missing}"
    complaint = _COMPLAINTS.search(text)
    assert complaint is None, text[max(0, complaint.start() - 200) :][:1_000]
    return result.out


def topic_of(folder: Path) -> str | None:
    """The topic whose log is in the folder; None where it is none of a log's."""
    found = _OF_A_LOG.fullmatch(folder.name)
    return found[1] if found and folder.is_dir() else None


def assert_kafka_is_content(
    java: JavaHost,
    *data_dirs: Path,
    after_a_crash: bool = False,
    is_renaming: bool = False,
    with_gaps: Collection[str] = (),
) -> int:
    """Reads every file of every partition: records one by one, indexes, aborted transactions, producers.

    The files must not change, and must not have changed when the broker was killed: there must be no part of a batch.
    Returns the number of files. After a clean stop every segment has its indexes; `after_a_crash` the last one has the
    indexes of its last opening, from which recovery makes them again. With `is_renaming`, indexes may still be .swap: a
    kill of Apache Kafka may come between the renames of a compaction, which its next start completes. If a log was
    compacted, or repaired, its topic has to be among those `with_gaps`.
    """
    folders = sorted(path for data_dir in data_dirs for path in data_dir.iterdir() if topic_of(path) is not None)
    assert folders, f"no partitions in {data_dirs}"
    logs = [log for folder in folders for log in sorted(folder.glob("*.log"))]
    indexes = [
        index
        for folder in folders
        for log in sorted(folder.glob("*.log"))[: -1 if after_a_crash else None]
        for index in (log.with_suffix(".index"), log.with_suffix(".timeindex"))
        if not (is_renaming and index.with_name(f"{index.name}.swap").exists())
    ]
    missing = [str(index) for index in indexes if not index.exists()]
    assert not missing, f"no {', '.join(missing)}"
    _all(java, logs, "--deep-iteration", with_gaps=with_gaps)
    output = _all(java, indexes, "--index-sanity-check")
    assert output.count("passed sanity check.") + output.count(" is empty.") == len(indexes), output[-1000:]
    _all(java, indexes, "--verify-index-only")
    others = [path for folder in folders for ending in ("txnindex", "snapshot") for path in folder.glob(f"*.{ending}")]
    _all(java, others)
    return len(logs) + len(indexes) + len(others)


def _all(java: JavaHost, files: Iterable[Path], *options: str, with_gaps: Collection[str] = ()) -> str:
    listed = list(files)
    parts = [listed[at : at + _FILES_AT_ONCE] for at in range(0, len(listed), _FILES_AT_ONCE)]
    return "".join(dump(java, part, *options, with_gaps=with_gaps) for part in parts)
