"""`kwire serve --nodes`: the command of each node, and the message when all of them run."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kwire.names.topic_names import internal_replication_factors

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_NODES: Final = 64
OF_EACH_NODE: Final = (
    "broker.id",
    "kwire.cluster.dir",
    "kwire.metrics.listen",
    "listeners",
    "advertised.listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "node.id",
)
ONE_COPY: Final = internal_replication_factors(1)
"""The nodes share one machine, its disk and its power, so copies would cost much and save little. Other topics have one
replica by default, too."""

_LISTENING: Final = re.compile(r"(kwire \S+) listening on (.+) \(node \d+, cluster (\S+), data in ")


def serve_nodes(
    nodes: str,
    config_file: Path | None,
    listen: Sequence[str],
    data_dirs: Sequence[str],
    metrics_listen: str | None,
    settings: Sequence[str],
    log_level: str,
) -> None:
    """Runs the nodes until a signal stops them. Raises ClickException."""
    import trio

    from kwire.node.supervisor import NodeFailed, node_command, supervise

    count = _count(nodes)
    if len(listen) > 1:
        raise click.UsageError("--nodes takes one --listen: the nodes listen on that port and on the ones after it")
    addresses = _addresses(listen[0] if listen else "127.0.0.1:9092", count)
    metrics = (
        [[]] * count
        if metrics_listen is None
        else [[f"--metrics-listen={address}"] for address in _addresses(metrics_listen, count)]
    )
    folder = _folder(data_dirs, count)
    given = _names(config_file, settings)
    taken = [name for name in OF_EACH_NODE if name in given]
    if taken:
        raise click.UsageError(f"{taken[0]} is different for each node, and --nodes chooses it: leave it out")
    common = [f"--log-level={log_level}", f"--set=kwire.cluster.dir={folder / 'cluster'}"]
    if config_file is not None:
        common.append(f"--config={config_file}")
    common += [f"--default={name}={value}" for name, value in ONE_COPY.items()]
    common += [f"--set={setting}" for setting in settings]
    commands = [
        node_command(
            [
                *common,
                f"--set=node.id={node_id}",
                f"--listen={address}",
                f"--data-dir={folder / f'node-{node_id}'}",
                *of_metrics,
            ]
        )
        for node_id, address, of_metrics in zip(range(1, count + 1), addresses, metrics, strict=True)
    ]

    def announce(lines: list[str]) -> None:
        found = [match for match in map(_LISTENING.match, lines) if match is not None]
        addresses = ", ".join(match[2] for match in found)
        click.echo(f"{found[0][1]} listening on {addresses} ({count} nodes, cluster {found[0][3]}, data in {folder})")

    try:
        trio.run(partial(supervise, commands, announce=announce, say=partial(click.echo, err=True)))
    except NodeFailed as error:
        raise click.ClickException(str(error)) from None


def _count(nodes: str) -> int:
    from kwire.node.supervisor import usable_cores

    if nodes == "auto":
        return usable_cores()
    if not nodes.isdecimal() or not 1 <= int(nodes) <= MOST_NODES:
        raise click.UsageError(f"--nodes takes a number from 1 to {MOST_NODES}, or auto: {nodes!r} is neither")
    return int(nodes)


def _addresses(first: str, count: int) -> list[str]:
    """Returns the address of each node, on consecutive ports. With port 0, each node gets a free one."""
    host, colon, port = first.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise click.UsageError(f"{first!r} is not an address to listen on: write host:port")
    return [f"{host}:{int(port) + number if int(port) else 0}" for number in range(count)]


def _folder(data_dirs: Sequence[str], count: int) -> Path:
    if len(data_dirs) > 1:
        raise click.UsageError("--nodes takes one --data-dir, in which each node has a folder of its own")
    folder = Path(data_dirs[0] if data_dirs else "./data")
    if (folder / "meta.properties").exists():
        raise click.UsageError(
            f"{folder} is the folder of a single broker: start it without --nodes, or choose another --data-dir"
        )
    left_out = [it.name for it in folder.glob("node-*") if it.name[5:].isdecimal() and int(it.name[5:]) > count]
    if left_out:
        click.echo(
            f"{folder} has {', '.join(sorted(left_out))} as well, which --nodes {count} does not start: what only they "
            "have cannot be read",
            err=True,
        )
    return folder


def _names(config_file: Path | None, settings: Sequence[str]) -> set[str]:
    """The names that the user has set."""
    from kwire.config.properties import parse_properties

    in_file = parse_properties(config_file.read_text(encoding="utf-8")) if config_file is not None else {}
    return {*in_file, *(setting.partition("=")[0].strip() for setting in settings)}
