"""No two modules of a package import each other, directly or by way of others, not even for annotations.

import-linter leaves out what stands under TYPE_CHECKING, for all contracts or for none. A circle there is still a
circle: neither module can be understood without the other.
"""

import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path

import grimp
import pytest

pytestmark = pytest.mark.more
"""`make check` runs them."""


def circles(package: str) -> Iterator[tuple[str, ...]]:
    """Returns the chain that leads back to the importing module, for each import that is part of a circle."""
    graph = grimp.build_graph(package, exclude_type_checking_imports=False, cache_dir=None)
    for importer in sorted(graph.modules):
        for imported in sorted(graph.find_modules_directly_imported_by(importer)):
            chain = graph.find_shortest_chain(importer=imported, imported=importer)
            if chain is not None:
                yield importer, *chain


@pytest.mark.parametrize("package", ["kwire_protocol", "kwire_storage", "kwire", "testkit"])
def test_a_package_has_no_circle(package: str) -> None:
    assert list(circles(package)) == []


def test_a_circle_for_annotations_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "round"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("from round import two\n")
    (package / "two.py").write_text("from round import three\n")
    (package / "three.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from round.one import One\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    invalidate_caches()
    assert set(circles("round")) == {
        ("round.one", "round.two", "round.three", "round.one"),
        ("round.two", "round.three", "round.one", "round.two"),
        ("round.three", "round.one", "round.two", "round.three"),
    }
    assert "round.one" not in sys.modules, "nothing is imported to find out"
