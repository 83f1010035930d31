"""`kwire serve`: run a broker in the foreground until a signal ends it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kwire.config.server import ServerConfig

EPILOG = """\b
Examples:
  kwire serve                                   127.0.0.1:9092, data in ./data
  kwire serve --listen 127.0.0.1:0              a free port; it is printed
  kwire serve --config server.properties --set log.retention.hours=24

Settings have Kafka's own names. A --set wins over the file, --listen and --data-dir win over both.
SIGINT (Ctrl-C) and SIGTERM stop the broker cleanly. What is appended survives a kill of the broker at any
moment; what survives a power cut is the operating system's to say, as with Kafka's own defaults.
"""


@click.command(epilog=EPILOG)
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A server.properties file, as Apache Kafka reads it.",
)
@click.option(
    "--listen",
    "listen",
    multiple=True,
    metavar="HOST:PORT",
    help="The address to listen on; port 0 takes a free one. May be repeated. [default: 127.0.0.1:9092]",
)
@click.option(
    "--data-dir",
    "data_dirs",
    multiple=True,
    metavar="DIRECTORY",
    help="The folder that holds the data; made if it is not there. May be repeated, or a list with commas: "
    "partitions are spread over the folders. [default: ./data]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting by its Kafka name, such as num.partitions=6. May be repeated.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much the broker says on standard error.",
)
def serve(
    config_file: Path | None,
    listen: tuple[str, ...],
    data_dirs: tuple[str, ...],
    settings: tuple[str, ...],
    log_level: str,
) -> None:
    """Run a Kafka broker until it is told to stop.

    No set-up comes first: a new data folder is made ready on the way, topics are created when a client asks for them
    (or by your usual tools), and the address that clients are told is the one they dialled.
    """
    import logging

    from kwire.cli.log_lines import LineFormatter
    from kwire.config.server import ConfigError

    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=log_level.upper(), handlers=[handler])
    try:
        config = _configure(config_file, listen, data_dirs, settings)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    from kwire.running import BrokerEnded, StartError, run_until_signalled

    try:
        run_until_signalled(config, announce=click.echo)
    except (StartError, BrokerEnded) as error:
        raise click.ClickException(str(error)) from None


def _configure(
    config_file: Path | None, listen: tuple[str, ...], data_dirs: tuple[str, ...], settings: tuple[str, ...]
) -> ServerConfig:
    from kwire.config.server import load_config

    return load_config(
        config_file.read_text(encoding="utf-8") if config_file else "",
        settings=settings,
        listen=listen,
        data_dirs=[path.strip() for given in data_dirs for path in given.split(",") if path.strip()],
    )
