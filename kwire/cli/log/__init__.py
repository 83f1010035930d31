"""`kwire log`: inspect and repair logs on disk. kwire_storage.inspection does the work; these modules show the results.

The commands import what they need when they run, so that they do not slow down the start of a broker.
"""

from __future__ import annotations

from inspect import cleandoc
from pathlib import Path

import click

DIR_HELP = """\b
DIR is a log dir, a partition's folder such as data/orders-0, or one file in either. Folders
written by Apache Kafka work too.
"""

DUMP_EPILOG = """\b
Examples:
  kwire log dump data/orders-0                          all files of the partition
  kwire log dump data/orders-0 --only log --records     its records, with keys and values
  kwire log dump data/orders-0 --offset 4711 --max-batches 1 --records
  kwire log dump data/__consumer_offsets-7 --records    commits and groups, decoded
  kwire log dump data --json | jq 'select(.type == "batch" and .problem)'

\b
Coming from kafka-dump-log.sh:
  --files                                       DIR, which may be a .log file
  --deep-iteration --print-data-log             --records
  --offsets-decoder, --transaction-log-decoder, chosen by the topic's name; use --decoder for a file
  --cluster-metadata-decoder, ...               that was moved out of its folder
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
Exit code: 0 sound (notes do not count), 1 errors or warnings found, 2 DIR is not a folder of logs.
"""

REPAIR_EPILOG = """\b
Examples:
  kwire log repair data --dry-run                   show what it would do
  kwire log repair data                             ask, then repair
  kwire log repair data/orders-0 --yes --drop-corrupt-ranges

\b
Copies of a partition's files go to orders-0/kwire-repair-TIME/. Copies of the log dir's own files stay beside
them, with the suffix .kwire-repair-TIME. Brokers ignore both; delete them when you no longer need them.
Exit code: 0 nothing left to repair, 1 something is left or was refused, 2 DIR is not a folder of logs.
"""

_DIR = click.argument(
    "folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, with stable names.")


@click.group()
def log() -> None:
    """Dump, check and repair logs on disk.

    dump and check only read. They take no lock, so they can run on the folder of a running broker. All three use
    bounded memory, whatever the size of the files.
    """


@log.command(epilog=DUMP_EPILOG, short_help="Show what is in DIR.")
@_DIR
@_JSON
@click.option("--records", is_flag=True, help="Also show the records of each batch.")
@click.option("--no-batches", is_flag=True, help="With --records: omit the lines about batches.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(["log", "index", "timeindex", "txnindex", "snapshot", "small"]),
    help="Only files of this kind; small means checkpoints and properties. Repeatable.",
)
@click.option(
    "--decoder",
    type=click.Choice(["auto", "none", "offsets", "transactions", "metadata", "share", "remote"]),
    default="auto",
    show_default=True,
    help="How to decode the records of internal topics.",
)
@click.option(
    "--offset", type=click.IntRange(min=0), help="Start with the first batch that ends at or after this offset."
)
@click.option("--max-batches", type=click.IntRange(min=1), help="Stop after this many batches.")
@click.option("--max-bytes", type=click.IntRange(min=1), help="Stop after this many bytes of batches.")
@click.option(
    "--max-value-bytes",
    type=click.IntRange(min=0),
    default=1024,
    show_default=True,
    help="Truncate longer keys, values and headers; 0 shows them in full.",
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

    Batches with a wrong CRC and ranges that hold no batch are shown with a description of the problem. Keys and values
    are shown as text if they are printable UTF-8, otherwise as base64.
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
@click.option(
    "--skip-records", is_flag=True, help="Trust a correct CRC and skip the records in the batch; much faster."
)
@click.option("--no-notes", is_flag=True, help="Omit notes, which are not inconsistencies.")
def check(folders: tuple[Path, ...], as_json: bool, skip_records: bool, no_notes: bool) -> None:
    """Find every inconsistency in DIR.

    Reads every batch: CRC, lengths, offsets, records, timestamps. Compares indexes, transaction indexes, producer
    snapshots, epochs and checkpoints with the batches. Each finding says what to do about it.
    """
    from kwire.cli.log.check import run

    run(folders, as_json=as_json, check_records=not skip_records, notes=not no_notes)


@log.command(epilog=REPAIR_EPILOG, short_help="Repair what check finds in DIR.")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@click.option(
    "--drop-corrupt-ranges",
    is_flag=True,
    help="Also remove corrupt ranges from the middle of a log. Without this they stay, and reads of them fail.",
)
def repair(folder: Path, yes: bool, dry_run: bool, drop_corrupt_ranges: bool) -> None:
    """Repair what `kwire log check` finds in DIR.

    Truncates an incomplete tail. Rebuilds wrong indexes, transaction indexes, producer snapshots and epochs from the
    records. Finishes interrupted compactions, moves leftover files away, and lowers checkpoints that are too high.
    Everything that is cut or replaced is copied first, and the copy is durable before anything changes.

    Stop the broker first: repair takes the same lock.
    """
    from kwire.cli.log.repair import run

    run(folder, confirm=not yes, dry_run=dry_run, drop_corrupt_ranges=drop_corrupt_ranges)


for _command in (dump, check, repair):
    text = DIR_HELP
    if _command is repair:
        text = text.replace("folder, a partition", "folder or a partition").replace(", or one file in either", "")
    _command.help = f"{cleandoc(_command.help or '')}\n\n{text}"
