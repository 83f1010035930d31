"""The options of commands that connect to a cluster, and their errors in one line, with exit code 1."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kwire.client.cluster import Cluster


class Reach:
    """The address, the timeout and the security of a command's connection to its cluster."""

    def __init__(self, bootstrap: str, timeout_s: float, command_config: Path | None) -> None:
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        self._command_config = command_config

    def cluster(self) -> Cluster:
        """Returns a context manager. Raises ClientError, and click's errors for a wrong file of --command-config."""
        from kwire.client.cluster import Cluster

        if self._command_config is None:
            return Cluster(self.bootstrap, timeout_s=self.timeout_s)
        from kwire.cli.command_config import read_command_config

        security = read_command_config(self._command_config)
        return Cluster(
            self.bootstrap, timeout_s=self.timeout_s, connect=security.connect, new_exchange=security.new_exchange
        )


class ClusterCommands(click.Group):
    """A group of such commands. Only this class turns the client's errors into click's."""

    def invoke(self, ctx: click.Context) -> Any:
        from kwire.client.errors import ClientError, InvalidAddress, NoBrokerReached

        try:
            return super().invoke(ctx)
        except InvalidAddress as error:
            raise click.UsageError(f"--bootstrap-server {error.message}", ctx) from None
        except NoBrokerReached as error:
            raise click.ClickException(f"{error.message}. --bootstrap-server names the broker to connect to") from None
        except ClientError as error:
            raise click.ClickException(error.message) from None


def client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a connection to a cluster; the command gets them as `reach`, a `Reach`."""

    @wraps(command)
    def reaching(*, bootstrap: str, timeout_s: float, command_config: Path | None, **others: Any) -> Any:
        return command(reach=Reach(bootstrap, timeout_s, command_config), **others)

    decorated: Callable[..., Any] = reaching
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
            help="Broker of the cluster, or several separated by commas: the first that answers is used.",
        ),
        click.option(
            "--command-config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Client settings with Kafka's names, for a cluster with TLS or SASL: security.protocol, "
            "sasl.mechanism, sasl.jaas.config, ssl.truststore.location, ...",
        ),
    ):
        decorated = option(decorated)
    return decorated


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, with stable names.")
