"""Facts about an API or a record without loading its module: entries of the tables in `messages` and `internal`."""

from __future__ import annotations

import importlib
from typing import cast

import attrs

from kwire_protocol.wire import ApiMessage


@attrs.frozen
class ApiInfo:
    key: int
    name: str
    module: str  # of kwire_protocol.messages
    min_version: int
    max_version: int
    flexible_since: int | None
    listeners: tuple[str, ...]  # "broker", "controller": the listeners that serve it; clients use the first
    latest_version_unstable: bool = False  # Kafka serves max_version only with unstable.api.versions.enable

    @property
    def versions(self) -> range:
        return range(self.min_version, self.max_version + 1)

    @property
    def request_name(self) -> str:
        return f"{self.name}Request"

    @property
    def response_name(self) -> str:
        return f"{self.name}Response"

    @property
    def request_class(self) -> type[ApiMessage]:
        """The class of the request. The first use loads its module; do not look it up for each request."""
        return self._load(self.request_name)

    @property
    def response_class(self) -> type[ApiMessage]:
        return self._load(self.response_name)

    def is_flexible(self, version: int) -> bool:
        return self.flexible_since is not None and version >= self.flexible_since

    def _load(self, name: str) -> type[ApiMessage]:
        module = importlib.import_module(f"kwire_protocol.messages.{self.module}")
        return cast("type[ApiMessage]", getattr(module, name))


@attrs.frozen
class RecordInfo:
    """Facts about one record of `kwire_protocol.internal`."""

    key: int
    name: str
    module: str  # of kwire_protocol.internal
    min_version: int
    max_version: int

    @property
    def record_class(self) -> type[ApiMessage]:
        """The class of the record; the first use loads its module."""
        module = importlib.import_module(f"kwire_protocol.internal.{self.module}")
        return cast("type[ApiMessage]", getattr(module, self.name))
