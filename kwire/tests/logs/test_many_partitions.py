"""More partitions, and segments, than a broker may have files open."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.servers.many_partitions import ManyPartitions


@pytest.mark.more
def test_many_partitions_are_served_on_few_descriptors_over_a_clean_stop_and_a_kill(tmp_path: Path) -> None:
    figures = ManyPartitions(tmp_path, partitions=1_000, descriptors=160).run()
    # A share for segments, 32 threads that sync at a stop, and the rest; connections are few here.
    assert figures.most_descriptors <= 160
