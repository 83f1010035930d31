"""`kwire serve`: run a broker in the foreground until a signal stops it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kwire.config.server import ServerConfig

EPILOG = """\b
Examples:
  kwire serve                                   127.0.0.1:9092, data in ./data
  kwire serve --listen 127.0.0.1:0              on a free port, which is printed
  kwire serve --nodes 4                         four brokers, on ports 9092 to 9095
  kwire serve --config server.properties --set log.retention.hours=24

Settings have Kafka's names. --set overrides the file; --listen, --data-dir and --metrics-listen override both.
SIGINT (Ctrl-C) and SIGTERM stop the broker cleanly. Acknowledged records survive a kill of the broker at any
time. By default they may be lost in a power cut, as in Kafka; flush.messages=1 makes them durable.
"""


@click.command(epilog=EPILOG)
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration file in Kafka's server.properties format.",
)
@click.option(
    "--listen",
    "listen",
    multiple=True,
    metavar="HOST:PORT",
    help="Address to listen on; port 0 picks a free port. Repeatable. [default: 127.0.0.1:9092]",
)
@click.option(
    "--data-dir",
    "data_dirs",
    multiple=True,
    metavar="DIRECTORY",
    help="Log dir, created if missing. Repeatable, or a comma-separated list: partitions are spread over the "
    "folders. [default: ./data]",
)
@click.option(
    "--metrics-listen",
    metavar="HOST:PORT",
    help="Serve metrics for Prometheus at this address, over HTTP, without authentication. [default: off]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Kafka setting, such as num.partitions=6. Repeatable.",
)
@click.option(
    "--nodes",
    metavar="NUMBER|auto",
    help="Run this many brokers as one cluster, each in its own process: node 1 on the port of --listen, the next on "
    "the ports after it, with their data in node-1, node-2, ... of --data-dir. auto is one for each core.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Lowest level of messages logged to standard error.",
)
@click.option("--default", "defaults", multiple=True, hidden=True)  # set by --nodes for its processes
@click.option("--stop-with-stdin", is_flag=True, hidden=True)
def serve(
    config_file: Path | None,
    listen: tuple[str, ...],
    data_dirs: tuple[str, ...],
    metrics_listen: str | None,
    settings: tuple[str, ...],
    nodes: str | None,
    log_level: str,
    defaults: tuple[str, ...],
    *,
    stop_with_stdin: bool,
) -> None:
    """Run a Kafka broker in the foreground.

    No setup is needed. The broker prepares a new log dir by itself. Topics are created at the first write, or by
    your usual tools. Clients get the address that they dialled.
    """
    import logging

    from kwire.cli.log_lines import LineFormatter
    from kwire.config.server import METRICS_LISTEN, ConfigError

    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=log_level.upper(), handlers=[handler])
    if nodes is not None:
        from kwire.cli.serve_nodes import serve_nodes

        serve_nodes(nodes, config_file, listen, data_dirs, metrics_listen, settings, log_level)
        return
    if metrics_listen is not None:
        settings = (*settings, f"{METRICS_LISTEN}={metrics_listen}")
    try:
        config = _configure(config_file, listen, data_dirs, settings, defaults)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    from kwire.node.running import BrokerEnded, StartError, run_until_signalled

    try:
        run_until_signalled(config, announce=click.echo, stops_with_stdin=stop_with_stdin)
    except (StartError, BrokerEnded) as error:
        raise click.ClickException(str(error)) from None


def _configure(
    config_file: Path | None,
    listen: Sequence[str],
    data_dirs: Sequence[str],
    settings: Sequence[str],
    defaults: Sequence[str],
) -> ServerConfig:
    from kwire.config.server import load_config

    return load_config(
        config_file.read_text(encoding="utf-8") if config_file else "",
        settings=settings,
        listen=listen,
        data_dirs=[path.strip() for given in data_dirs for path in given.split(",") if path.strip()],
        defaults=dict(it.split("=", 1) for it in defaults),
    )
