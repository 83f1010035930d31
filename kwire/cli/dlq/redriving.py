"""`kwire dlq redrive`."""

from __future__ import annotations

from typing import Final

import click

from kwire.admin.dead_letters.letters import Selection
from kwire.admin.dead_letters.redriving import NotSent, Outcome, Redrive, RedriveOptions, Report
from kwire.cli.columns import Row, printable, show
from kwire.cli.dlq.progress import counting_bar
from kwire.cli.reaching import Reach
from kwire.client.errors import ClientError
from kwire.runtime.clock import SystemClock

_COLUMNS: Final = {"result": "RESULT", "letters": "LETTERS", "to": "TO", "reason": "REASON"}


def redrive(reach: Reach, topic: str, selection: Selection, options: RedriveOptions, *, as_json: bool) -> None:
    """Exits with 1 if a letter was not sent."""
    with reach.cluster() as cluster:
        work = Redrive(cluster, topic, selection, options, SystemClock().now_ms)
        try:
            with counting_bar(f"redriving {topic}") as work.progress:
                work.run()
        except BaseException as error:
            if work.report.counts:
                _print_report(work.report, options, as_json=as_json)
            # After an error that may pass, the last transaction may be committed.
            if not options.is_dry and (work.report.sent or (isinstance(error, ClientError) and error.may_pass)):
                click.echo("run the same command again to continue: what was sent is not sent twice", err=True)
            raise
    _print_report(work.report, options, as_json=as_json)
    if not work.report.is_whole:
        raise click.exceptions.Exit(1)


def _print_report(report: Report, options: RedriveOptions, *, as_json: bool) -> None:
    for it in report.not_sent:
        click.echo(printable(_not_sent_text(it)), err=True)
    rows = [_row(report, key, options) for key in sorted(report.counts, key=lambda it: (it[0].value, it[1] or ""))]
    rows.sort(key=lambda row: [it.value for it in Outcome].index(str(row["result"])))
    if as_json:
        show(rows, {}, as_json=True)
    elif rows:
        shown = [
            {**row, "result": "would be sent" if options.is_dry and row["reason"] is None else row["result"]}
            for row in rows
        ]
        show(shown, _COLUMNS, as_json=False)
    else:
        click.echo("there is no such letter")
    if report.is_cut:
        click.echo("there are more letters: the limit is reached", err=True)
    if options.is_dry and not as_json:
        click.echo("\nnothing was changed: without --dry-run these letters are sent")


def _row(report: Report, key: tuple[Outcome, str | None, str | None], options: RedriveOptions) -> Row:
    outcome, to, reason = key
    return {
        "type": "redrive",
        "result": outcome.value,
        "letters": report.counts[key],
        "to": to,
        "reason": reason,
        "executed": not options.is_dry,
    }


def _not_sent_text(it: NotSent) -> str:
    record = "" if it.origin is None else f", for record {it.origin}"
    return f"{it.outcome.value}: {it.at} offset {it.offset}{record}: {it.reason}"
