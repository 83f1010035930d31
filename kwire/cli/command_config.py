"""The file of --command-config: a client's settings, as Kafka's own tools take them."""

from __future__ import annotations

from pathlib import Path

import click

from kwire.client.security import ClientSecurity
from kwire.config.client_security import client_security
from kwire.config.definition import ConfigError
from kwire.config.properties import parse_properties
from kwire.runtime.clock import SystemClock, secret_of


def read_command_config(path: Path) -> ClientSecurity:
    """Raises click's errors."""
    clock = SystemClock()
    try:
        properties = parse_properties(path.read_text(encoding="utf-8"))
        return client_security(properties, lambda: secret_of(clock).hex())
    except (ConfigError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path}: {error}") from None
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}") from None
