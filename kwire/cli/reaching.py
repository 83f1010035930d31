"""Commands that talk to a cluster: the options that reach it, and errors in one line, with exit code 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class ClusterCommands(click.Group):
    """A group of such commands. Only this class turns the client's errors into click's."""

    def invoke(self, ctx: click.Context) -> Any:
        from kwire.client.errors import ClientError, InvalidAddress, NoBrokerReached

        try:
            return super().invoke(ctx)
        except InvalidAddress as error:
            raise click.UsageError(f"--bootstrap-server {error.message}", ctx) from None
        except NoBrokerReached as error:
            raise click.ClickException(f"{error.message}. --bootstrap-server names the broker to ask") from None
        except ClientError as error:
            raise click.ClickException(error.message) from None


def client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options with which every command reaches a cluster. Only plain text connections, without TLS."""
    for option in (
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(min=0, min_open=True, max=3600),
            default=30.0,
            show_default=True,
            metavar="SECONDS",
            help="How long to wait for a broker.",
        ),
        click.option(
            "--bootstrap-server",
            "bootstrap",
            default="127.0.0.1:9092",
            show_default=True,
            metavar="HOST:PORT",
            help="Broker of the cluster (no TLS), or several separated by commas: the first that answers is used.",
        ),
    ):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, with stable names.")
