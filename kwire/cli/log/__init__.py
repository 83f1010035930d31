"""`kwire log`: looking at logs on disk, and mending them. The work is in kwire_storage.inspection; here it is shown.

The commands import what they need when they run: the start of a broker pays for none of it.
"""

from __future__ import annotations

from inspect import cleandoc
from pathlib import Path

import click

DIR_HELP = """\b
DIR is a data folder, a partition's folder such as data/orders-0, or one file of either. Folders
written by Apache Kafka are read as well.
"""

DUMP_EPILOG = """\b
Examples:
  kwire log dump data/orders-0                          every file of the partition
  kwire log dump data/orders-0 --only log --records     its records, keys and values shown
  kwire log dump data/orders-0 --offset 4711 --max-batches 1 --records
  kwire log dump data/__consumer_offsets-7 --records    commits and groups, decoded
  kwire log dump data --json | jq 'select(.type == "batch" and .problem)'

\b
Coming from kafka-dump-log.sh:
  --files                                       DIR; a .log among them
  --deep-iteration --print-data-log             --records
  --offsets-decoder, --transaction-log-decoder, chosen by the topic's name; --decoder for a file
  --cluster-metadata-decoder, ...               that was taken out of its folder
  --skip-record-metadata                        --no-batches
  --max-bytes                                   --max-bytes
  --index-sanity-check, --verify-index-only     kwire log check
"""

CHECK_EPILOG = """\b
Examples:
  kwire log check data
  kwire log check data/orders-0 data/orders-1
  kwire log check data --json | jq 'select(.severity == "error")'

\b
Exit code: 0 sound (notes do not count), 1 something is wrong, 2 not a folder of logs.
"""

REPAIR_EPILOG = """\b
Examples:
  kwire log repair data --dry-run                   what it would do
  kwire log repair data                             asks first
  kwire log repair data/orders-0 --yes --drop-corrupt-ranges

\b
Copies are kept in orders-0/kwire-repair-TIME/, those of the data folder's own files beside them with
.kwire-repair-TIME at their names' end. Brokers look at neither; remove them when they are not needed any more.
Exit code: 0 nothing is left, 1 something is left or was refused, 2 not a folder of logs.
"""

_DIR = click.argument(
    "folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line, under names that stay.")


@click.group()
def log() -> None:
    """Dump, check and repair logs on disk.

    dump and check only read: they take no lock, and may look at the folder of a running broker. All three take files
    of any size in bounded memory.
    """


@log.command(epilog=DUMP_EPILOG, short_help="Show what is in DIR.")
@_DIR
@_JSON
@click.option("--records", is_flag=True, help="Show the records of each batch as well.")
@click.option("--no-batches", is_flag=True, help="With --records: leave out the batches around them.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(["log", "index", "timeindex", "txnindex", "snapshot", "small"]),
    help="Only files of this kind; small is for checkpoints and properties. May be repeated.",
)
@click.option(
    "--decoder",
    type=click.Choice(["auto", "none", "offsets", "transactions", "metadata", "share", "remote"]),
    default="auto",
    show_default=True,
    help="How the records of internal topics are read.",
)
@click.option("--offset", type=click.IntRange(min=0), help="Begin with the batch that has this offset, or comes after.")
@click.option("--max-batches", type=click.IntRange(min=1), help="Stop after so many batches.")
@click.option("--max-bytes", type=click.IntRange(min=1), help="Stop after so many bytes of batches.")
@click.option(
    "--max-value-bytes",
    type=click.IntRange(min=0),
    default=1024,
    show_default=True,
    help="Cut longer keys, values and headers; 0 shows them whole.",
)
def dump(
    folders: tuple[Path, ...],
    as_json: bool,
    records: bool,
    no_batches: bool,
    only: tuple[str, ...],
    decoder: str,
    offset: int | None,
    max_batches: int | None,
    max_bytes: int | None,
    max_value_bytes: int,
) -> None:
    """Show what is in DIR: batches, records, indexes, producers, epochs, checkpoints.

    Batches whose CRC is wrong are shown with what is wrong with them, and so are ranges that are no batch at all. Keys
    and values are shown as text where they are printable UTF-8, else as base64.
    """
    from kwire.cli.log.dump import DumpOptions, run

    options = DumpOptions(
        records=records,
        batches=not no_batches,
        only=frozenset(only),
        decoder=decoder,
        offset=offset,
        max_batches=max_batches,
        max_bytes=max_bytes,
        max_value_bytes=max_value_bytes,
    )
    run(folders, options, as_json=as_json)


@log.command(epilog=CHECK_EPILOG, short_help="Find every inconsistency in DIR.")
@_DIR
@_JSON
@click.option("--skip-records", is_flag=True, help="Believe a right CRC and do not look into batches; much quicker.")
@click.option("--no-notes", is_flag=True, help="Leave out what is no inconsistency.")
def check(folders: tuple[Path, ...], as_json: bool, skip_records: bool, no_notes: bool) -> None:
    """Find every inconsistency in DIR.

    Every batch is read: CRC, lengths, offsets, records, timestamps. Indexes, transaction indexes, producer snapshots,
    epochs and checkpoints are held against what the batches say. Each finding tells what to do about it.
    """
    from kwire.cli.log.check import run

    run(folders, as_json=as_json, look_into_records=not skip_records, notes=not no_notes)


@log.command(epilog=REPAIR_EPILOG, short_help="Mend what check finds in DIR.")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--drop-corrupt-ranges",
    is_flag=True,
    help="Take what is no good batch out of the middle of a log, too. Without it it stays, and readers are told.",
)
def repair(folder: Path, yes: bool, dry_run: bool, drop_corrupt_ranges: bool) -> None:
    """Mend what `kwire log check` finds in DIR, a data folder or a partition's.

    A torn tail is cut off. Indexes, transaction indexes, producer snapshots and epochs that are wrong are made anew
    from the records. Interrupted compactions are finished, leftovers moved away, checkpoints that promise too much
    lowered. A copy of everything that is cut or replaced is kept, and is on the disk before anything is changed.

    No broker may use the folder meanwhile: repair takes the lock that brokers take.
    """
    from kwire.cli.log.repair import run

    run(folder, ask=not yes, dry_run=dry_run, drop_corrupt_ranges=drop_corrupt_ranges)


for _command in (dump, check, repair):
    told = DIR_HELP
    if _command is repair:
        told = told.replace("folder, a partition", "folder or a partition").replace(", or one file of either", "")
    _command.help = f"{cleandoc(_command.help or '')}\n\n{told}"
