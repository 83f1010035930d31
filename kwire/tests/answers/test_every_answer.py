"""Every response can be written in every served version, and has an error code if a client is refused."""

from __future__ import annotations

import pytest

from kwire.handlers.apis import APIS, Api
from testkit.scenes.answers.walk import NOT_REFUSED, NOT_SET, NOTHING_SAYS_SO, Walk, limited_fields


@pytest.mark.parametrize("api", APIS.values(), ids=lambda it: it.name)
def test_every_version_can_carry_each_answer_and_each_refusal(api: Api) -> None:
    walk = Walk(api).go()
    assert walk.unwritten == []
    assert walk.answers["asked"] > 0
    assert walk.answers["denied"] > 0
    if api.name not in NOT_REFUSED:
        assert walk.silent == set(NOTHING_SAYS_SO.get(api.name, ()))
    assert limited_fields(api) - walk.seen == set(NOT_SET.get(api.name, ()))
