"""The delay before a failed authentication is answered, which makes it slow to guess passwords."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.runtime.futures import Pause

if TYPE_CHECKING:
    from kwire.metadata.service import MetadataService


async def failed_authentication_is_over(metadata: MetadataService) -> None:
    """Waits for connection.failed.authentication.delay.ms."""
    delay_ms = metadata.config.connection_failed_authentication_delay_ms
    if delay_ms > 0:
        await Pause(delay_ms / 1000)
