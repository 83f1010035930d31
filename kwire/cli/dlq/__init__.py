"""`kwire dlq`: dead letters of share groups, in any Kafka cluster.

`kwire.admin.dead_letters` does the work, these modules print. The commands import their modules when they run, so that
they do not slow down the start of a broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from kwire.cli.reaching import ClusterCommands, Reach, client_options, json_option

LIST_EPILOG = """\b
Examples:
  kwire dlq list                                    every dead-letter topic, with its letters
  kwire dlq list --topic dlq.kitchen                one topic, whatever it is
  kwire dlq list --json | jq 'select(.type == "letters")'
"""

SHOW_EPILOG = """\b
Examples:
  kwire dlq show dlq.kitchen
  kwire dlq show dlq.kitchen --group kitchen --origin-topic orders --since 2h
  kwire dlq show dlq.kitchen --partition 0 --offset 17 --json
  kwire dlq show dlq.kitchen --reason rejected --limit 1000
"""

REDRIVE_EPILOG = """\b
Examples:
  kwire dlq redrive dlq.kitchen --all --dry-run     shows what would be sent
  kwire dlq redrive dlq.kitchen --all
  kwire dlq redrive dlq.kitchen --partition 0 --offset 17
  kwire dlq redrive dlq.kitchen --group kitchen --since 2026-01-31 --rate 100
  kwire dlq redrive dlq.kitchen --all --to orders-again

\b
Exit code: 0 if all letters are sent, now or before, 1 otherwise.
"""

_LARGEST = 2**63 - 1
_LARGEST_PARTITION = 2**31 - 1


def _selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that select letters of a topic, the same for `show` and `redrive`."""
    moment = "2026-01-31T12:00:00Z, 2026-01-31, 90m or 2h or 7d (ago), or ms since 1970"
    for option in (
        click.option("--until", metavar="TIME", help="Only letters that were written before."),
        click.option("--since", metavar="TIME", help=f"Only letters that were written since: {moment}."),
        click.option("--reason", metavar="TEXT", help="Only letters whose reason has this text, in any case."),
        click.option(
            "--origin-offset",
            type=click.IntRange(0, _LARGEST),
            metavar="OFFSET",
            help="Only the letters of the record with this offset.",
        ),
        click.option(
            "--origin-partition",
            type=click.IntRange(0, _LARGEST_PARTITION),
            metavar="NUMBER",
            help="Only letters of records of this partition.",
        ),
        click.option(
            "--origin-topic",
            "origin_topics",
            multiple=True,
            metavar="TOPIC",
            help="Only letters of records of this topic. Repeatable.",
        ),
        click.option(
            "--group", "groups", multiple=True, metavar="GROUP", help="Only letters of this share group. Repeatable."
        ),
        click.option(
            "--offset",
            "offsets",
            multiple=True,
            type=click.IntRange(0, _LARGEST),
            metavar="OFFSET",
            help="With --partition: only the letter at this offset. Repeatable.",
        ),
        click.option(
            "--partition",
            type=click.IntRange(0, _LARGEST_PARTITION),
            metavar="NUMBER",
            help="Only this partition of the dead-letter topic.",
        ),
    ):
        command = option(command)
    return command


@click.group(cls=ClusterCommands)
def dlq() -> None:
    """Show the dead letters of share groups (KIP-1191), and send their records again.

    A dead letter is a record about a record that a share group gave up. Its headers say which, why, and how often it
    was delivered. The group's configuration decides whether the record is copied into it.

    Works with kwire, and with any Kafka cluster from version 3.0 on that has such topics.
    """


@dlq.command("list", epilog=LIST_EPILOG, short_help="List dead-letter topics, and count their letters.")
@client_options
@json_option
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic. Repeatable.")
def list_(reach: Reach, as_json: bool, topics: tuple[str, ...]) -> None:
    """Count the letters of each dead-letter topic, by share group and by topic of origin.

    Dead-letter topics are those that the configuration of a share group names (errors.deadletterqueue.topic.name), and
    those that have errors.deadletterqueue.group.enable. Apache Kafka has these from version 4.4 on; elsewhere, name
    topics with --topic.

    All letters are read, so this takes a while if there are millions. REDRIVEN are those that `kwire dlq redrive` has
    sent. --json prints an object of type "topic" for each topic, and those of type "letters" after it.
    """
    from kwire.cli.dlq import showing

    showing.list_topics(reach, topics, as_json=as_json)


@dlq.command(epilog=SHOW_EPILOG, short_help="Show letters: from where, why, and what the record was.")
@click.argument("topic", metavar="TOPIC")
@client_options
@json_option
@_selection_options
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    metavar="COUNT",
    help="Show at most so many letters.",
)
@click.option(
    "--max-value-bytes",
    type=click.IntRange(min=0),
    metavar="BYTES",
    help="Truncate longer keys, values and headers; 0 shows them in full.  [default: 40, with --json 4096]",
)
def show(topic: str, reach: Reach, as_json: bool, limit: int, max_value_bytes: int | None, **which: Any) -> None:
    """Show letters of dead-letter topic TOPIC: the record's origin, the group, the reason, the number of deliveries.

    Key and value are there if the group copies records. Otherwise the letter only refers to its record.
    """
    from kwire.cli.dlq import showing
    from kwire.cli.dlq.arguments import choose_letters

    selection = choose_letters(**which)
    showing.show_letters(reach, topic, selection, limit, max_value_bytes, as_json=as_json)


@dlq.command(epilog=REDRIVE_EPILOG, short_help="Send the records of letters again, each once.")
@click.argument("topic", metavar="TOPIC")
@client_options
@json_option
@_selection_options
@click.option("--all", "is_all", is_flag=True, help="All letters that there are now.")
@click.option("--to", metavar="TOPIC", help="Send the records to this topic, instead of those from which they came.")
@click.option("--again", is_flag=True, help="Also send what an earlier redrive has sent.")
@click.option("--dry-run", is_flag=True, help="Change nothing, and show what would be sent.")
@click.option("--limit", type=click.IntRange(1, _LARGEST), metavar="COUNT", help="Send at most so many letters.")
@click.option(
    "--rate",
    "rate_per_s",
    type=click.FloatRange(min=0.001, max=1e9),
    metavar="RECORDS",
    help="Send at most so many records a second.",
)
def redrive(
    topic: str,
    reach: Reach,
    as_json: bool,
    is_all: bool,
    to: str | None,
    again: bool,
    dry_run: bool,
    limit: int | None,
    rate_per_s: float | None,
    **which: Any,
) -> None:
    """Send the records of dead-letter topic TOPIC again. Say which by options, or --all.

    Each record goes to the topic and the partition from which it came, or --to another topic, to the partition of its
    key. It has its key, value and headers, without those of the letter; the header __kwire.redriven.count says how
    often it was sent again. It is taken from the letter, with the letter's timestamp, or if the letter only refers to
    it, from where it was, with its own timestamp. A record that is gone there cannot be sent, and is reported.

    What is guaranteed: each letter is sent once, whatever is killed. Records, and a note of what was sent, are written
    in one transaction. After a kill, give the same command again: it sends the rest. The note is in the compacted
    topic kwire-redriven-TOPIC, for all redrives of TOPIC, wherever they send to; do not delete it while there are
    letters. Another redrive of the same topic ends the one that runs. Consumers, and share groups, that read
    uncommitted may see records of a transaction that was killed, and then see them again.

    What is not: a broker that was killed may have written two letters about one record, and each is sent. A letter does
    not tell the id of its topic: if that was deleted and created again, another record may be where it refers to.

    Letters stay where they are. What is written to TOPIC while this runs is left for the next time. --offset,
    --partition, --since and --until are about the letter.
    """
    from kwire.admin.dead_letters.redriving import RedriveOptions
    from kwire.cli.dlq import redriving
    from kwire.cli.dlq.arguments import choose_letters

    selection = choose_letters(**which)
    if is_all and not selection.is_everything:
        raise click.UsageError("--all is all letters: leave it or the other options out")
    if selection.is_everything and not is_all:
        raise click.UsageError("say which letters: by options such as --group or --offset, or --all")
    if to == topic:
        raise click.UsageError(f"--to is the dead-letter topic itself: {to}")
    options = RedriveOptions(to=to, again=again, is_dry=dry_run, limit=limit, rate_per_s=rate_per_s)
    redriving.redrive(reach, topic, selection, options, as_json=as_json)
