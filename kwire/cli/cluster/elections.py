"""`kwire cluster elect`: elects leaders, and prints the leader of each partition."""

from __future__ import annotations

import click

from kwire.admin.elections import Elected, elect, electable
from kwire.cli.cluster.showing import names_text
from kwire.cli.columns import Row, printable, show
from kwire.cli.reaching import Reach

_COLUMNS = {"name": "PARTITION", "before": "LEADER BEFORE", "leader_id": "LEADER", "problem": "PROBLEM"}


def elect_leaders(reach: Reach, topic: str | None, *, unclean: bool, confirm: bool, as_json: bool) -> None:
    """Exits with 1 if an election failed."""
    with reach.cluster() as cluster:
        partitions = electable(cluster, topic, unclean=unclean)
        if not partitions:
            if not as_json:
                message = (
                    "every partition has a leader" if unclean else "every partition is led by its preferred leader"
                )
                click.echo(message + ("" if topic is None else printable(f" in topic {topic}")))
            return
        if unclean and confirm:
            names = names_text([printable(str(it.at)) for it in partitions])
            click.confirm(
                f"without a leader: {names}.\n"
                "Any replica in service is elected. Records that it does not have are lost, even acknowledged ones.\n"
                "elect leaders?",
                abort=True,
                err=as_json,
            )
        found = elect(cluster, partitions, unclean=unclean)
    show([_json_row(it) if as_json else _text_row(it) for it in found], _COLUMNS, as_json=as_json)
    if any(it.problem is not None for it in found):
        raise click.exceptions.Exit(1)


def _text_row(it: Elected) -> Row:
    return {"name": str(it.at), "before": it.leader_before, "leader_id": it.leader_id, "problem": it.problem or ""}


def _json_row(it: Elected) -> Row:
    return {
        "type": "election",
        "topic": it.at.topic,
        "partition": it.at.partition,
        "leader_before": it.leader_before,
        "leader_id": it.leader_id,
        "problem": it.problem,
    }
