"""Adds users to a log dir before a broker starts on it: a broker that requires SCRAM needs a first user.

Kafka has `kafka-storage format --add-scram` for this. Here the broker itself is opened, without accepting connections,
so a new folder is prepared as at its first start, and one with data keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from kwire_storage.disk.files import RealDisk

from kwire.admin.users import NewCredential
from kwire.client.errors import error_name
from kwire.config.server import ConfigError, load_config
from kwire.metadata.controller.access.scram_users import alter_scram_credentials
from kwire.node.running import BrokerEnded, StartError, close_broker, open_broker
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import at_once


def put_user_into(
    data_dir: Path | None, config_file: Path | None, name: str, credentials: Sequence[NewCredential]
) -> None:
    """Writes the user to the log dir, or the cluster, of the broker that has this folder or configuration.

    Raises click's errors: a broker uses the folder, it cannot be written, the user cannot be added.
    """
    try:
        text = "" if config_file is None else config_file.read_text(encoding="utf-8")
        config = load_config(text, data_dirs=[] if data_dir is None else [str(data_dir.absolute())])
        disks = {path: RealDisk(path) for path in (config.metadata_log_dir, *config.log_dirs)}
        broker = open_broker(config, disks, SystemClock())
        try:
            for it in credentials:
                upsertion = ScramCredentialUpsertion(name, it.mechanism, it.iterations, it.salt, it.salted_password)
                request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
                _check(name, at_once(broker.metadata.change(alter_scram_credentials, request)))
        finally:
            close_broker(broker)
    except (StartError, BrokerEnded, ConfigError) as error:
        raise click.ClickException(str(error)) from None


def _check(name: str, response: AlterUserScramCredentialsResponse) -> None:
    [result] = response.results
    if result.error_code:
        raise click.ClickException(
            f"user {quoted(name)} was not added: {error_name(result.error_code)} ({result.error_message})"
        )
