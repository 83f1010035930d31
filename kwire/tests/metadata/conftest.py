"""A service's decisions do not depend on where its log is: tests run on a file and on a distant log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.metadata import harness
from testkit.metadata.distant_log import NEWS

ON_BOTH = (
    "test_acl_changes",
    "test_cluster_requests",
    "test_config_changes",
    "test_config_description",
    "test_create_topics",
    "test_features",
    "test_topic_changes",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in ON_BOTH:
        metafunc.parametrize("metadata_log", ["file", "distant"], indirect=True)


@pytest.fixture(autouse=True)
def metadata_log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(harness, "is_distant", getattr(request, "param", "file") == "distant")
    yield
    NEWS.clear()
