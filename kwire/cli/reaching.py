"""Commands that talk to a cluster report the client's errors in one line, with exit code 1."""

from __future__ import annotations

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
