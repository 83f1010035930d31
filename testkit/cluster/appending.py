"""A process that appends numbered values to a shared metadata log, and prints each when it is acknowledged.

python -m testkit.cluster.appending FOLDER NODE_ID COUNT
"""

from __future__ import annotations

import sys
import time

from kwire_storage.disk.files import RealDisk

from kwire.cluster.local.metadata_log import SharedMetadataLog
from kwire.metadata.log import AppendConflict
from kwire.runtime.futures import at_once


def main(folder: str, node_id: int, count: int) -> None:
    log = SharedMetadataLog.open(RealDisk(folder), node_id, lambda: time.time_ns() // 1_000_000)
    for number in range(count):
        value = f"{node_id}:{number}"
        while True:
            try:
                at_once(log.append([value.encode()], expected_end_offset=log.end_offset))
            except AppendConflict:
                continue
            sys.stdout.write(f"{value}\n")
            sys.stdout.flush()
            break


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
