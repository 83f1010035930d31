"""The quota of a client: Kafka's order of precedence.

The first of these that exists counts (docs of Kafka, "Quota Configuration"):

    1. user and client id           both, and each pair has a quota to itself
    2. user, any client id          each client id of that user has a quota to itself
    3. user                         all client ids of the user share one
    4. any user, client id          each pair has a quota to itself
    5. any user, any client id      the same
    6. any user                     all client ids of a user share one
    7. client id                    all users of the client id share one
    8. any client id                the same

So a quota has two parts: the clients that share it (`Sharers`), and their limit together. As in Kafka, quotas for any
client id do not apply to a client without an id.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from kwire.metadata.access import CLIENT_ID, USER, QuotaEntity

Sharers = tuple[str, str]
"""A user and a client id; an empty text means all of them."""

_Name = str | None
"""The name of an entity; None is the default entity, for those without a quota of their own."""


@attrs.frozen
class QuotasOfClients:
    """The quotas with one key, such as producer_byte_rate, by their entities."""

    of_pairs: Mapping[tuple[_Name, _Name], float] = attrs.field(factory=dict)
    of_users: Mapping[_Name, float] = attrs.field(factory=dict)
    of_client_ids: Mapping[_Name, float] = attrs.field(factory=dict)

    @classmethod
    def read(cls, quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str) -> QuotasOfClients:
        """Reads the quotas with this key. As in Kafka, a bound may be infinite or NaN, and then nothing exceeds it."""
        of_pairs: dict[tuple[_Name, _Name], float] = {}
        of_users: dict[_Name, float] = {}
        of_client_ids: dict[_Name, float] = {}
        for entity, values in quotas.items():
            if key not in values:
                continue
            bound = math.inf if math.isnan(values[key]) else values[key]
            names = dict(entity)
            if names.keys() == {USER, CLIENT_ID}:
                of_pairs[names[USER], names[CLIENT_ID]] = bound
            elif names.keys() == {USER}:
                of_users[names[USER]] = bound
            elif names.keys() == {CLIENT_ID}:
                of_client_ids[names[CLIENT_ID]] = bound
        return cls(of_pairs, of_users, of_client_ids)

    def __bool__(self) -> bool:
        return bool(self.of_pairs or self.of_users or self.of_client_ids)

    def find(self, user: str, client_id: str) -> tuple[Sharers, float] | None:
        """Returns the sharers of such a client's quota, and its bound; None if it has none that can be exceeded."""
        sharers = self._sharers(user, client_id)
        bound = self._bound(*sharers)
        return None if bound is None or bound == math.inf else (sharers, bound)

    def _sharers(self, user: str, client_id: str) -> Sharers:
        pairs, users = self.of_pairs, self.of_users
        if (user, client_id) in pairs or (user, None) in pairs:
            return user, client_id
        if user in users:
            return user, ""
        if (None, client_id) in pairs or (None, None) in pairs:
            return user, client_id
        if None in users:
            return user, ""
        return "", client_id

    def _bound(self, user: str, client_id: str) -> float | None:
        if user and client_id:
            names = ((user, client_id), (user, None), (None, client_id), (None, None))
            return next((self.of_pairs[it] for it in names if it in self.of_pairs), None)
        quotas, name = (self.of_users, user) if user else (self.of_client_ids, client_id)
        if not name:
            return None
        return quotas.get(name, quotas.get(None))
