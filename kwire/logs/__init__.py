"""Maintains the logs on disk: compaction, moves between log dirs, free space.

The life of a compaction:

1. Every log.cleaner.backoff.ms `cleaner.py` checks which logs are dirty enough, and selects the dirtiest. A check of
   thousands of partitions yields every 2 ms, and a clean log costs one comparison.
2. The records to be cleaned are flushed, and the recovery point is written above them, because a recovery regards gaps
   above the recovery point as losses.
3. `kwire_storage/compaction/planning.py` makes a `Plan` on the loop: a value that lists the segments. A separate
   process carries it out (`kwire_storage/compaction/writing.py`): it reads the old segments, writes new ones into the
   same folder, and returns a `Written`. `segment_writing.py` starts the process (`cleaner_process.py`) when there is
   work, and it ends after 30 s without work. For disks in memory a worker thread does the same.
4. Back on the loop the old files are renamed and readers get the new segments, group by group
   (`kwire_storage/compaction/swap.py`); a thread does the syncs in between. A slice that is being sent keeps its file.
5. Records that retention, a deletion or a truncation removed meanwhile are left out. During the exchange retention
   waits, so that a kill leaves no hole. A full disk leaves everything unchanged. If a disk fails during the exchange,
   the folder is out of service, and the next start completes the exchange. If the process dies, the log is unchanged,
   the broker logs the reason, and the next round tries again.

Compaction never decodes records: `kwire_protocol/record_scan.py` finds keys and offsets, and the remaining records of a
batch keep their own bytes (`record_subset.py`).

The cleaner process and the broker share only files: it reads sealed `*.log` and writes `*.cleaned`. Its working
directory is the log's folder, through a descriptor from the broker, so that it does not write into another folder of
that name. It ends when its socket closes, for any death of the broker. While it works it holds `.kwire.cleaner.lock` in
the log dir, and it checks only after it has the lock that its broker is alive: the next broker waits for that lock
before it reads a partition.
"""
