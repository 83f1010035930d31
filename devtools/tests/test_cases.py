"""A failure in one of many cases names it, however it fails."""

from __future__ import annotations

import pytest

from devtools.suite.cases import naming


def test_a_failure_has_its_case_as_a_note() -> None:
    with pytest.raises(AssertionError) as failure, naming("v7"):
        raise AssertionError
    assert failure.value.__notes__ == ["v7"]


def test_what_pytest_raises_itself_has_it_too() -> None:
    with pytest.raises(pytest.fail.Exception) as failure, naming("v7"), pytest.raises(ValueError, match="never"):
        pass
    assert failure.value.__notes__ == ["v7"]
