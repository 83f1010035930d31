"""A plugin of pytest's: tests run without one check of the code.

    python -m pytest -p testkit.security.checks.breaking --broken-check "PATH FUNCTION: TEXT" FILE...

The module is compiled without the check when the tests import it. Processes that the tests start have it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, Final

import attrs
import pytest

from devtools.places import REPOSITORY
from testkit.security.checks.finding import Check, broken, checks_of

OPTION: Final = "--broken-check"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, metavar="NAME", help="Run the tests without this check.")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before there is a conftest.py that imports the module."""
    name = early_config.known_args_namespace.broken_check
    path = name.partition(" ")[0]
    source = (REPOSITORY / path).read_text(encoding="utf-8")
    [check] = [it for it in checks_of(path, source) if it.name == name]
    module = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    assert module not in sys.modules, f"{module} was imported before the check in it could be broken"
    sys.meta_path.insert(0, _Finder(module, check))


@attrs.frozen
class _Finder(MetaPathFinder):
    module: str
    check: Check

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self.check)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, module: str, path: str, check: Check) -> None:
        super().__init__(module, path)
        self._check = check

    def get_code(self, fullname: str) -> CodeType:
        """Returns the code of the broken source, never that of a .pyc file."""
        source = self.get_data(self.path).decode()
        return compile(broken(self._check, source), self.path, "exec", dont_inherit=True)


def granting(selection: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns the result of `selection` with all permissions."""
    from kwire.security.authorizer import AllowAll

    authorization = selection.__self__
    authorizer, authorization.authorizer = authorization.authorizer, AllowAll()
    try:
        return selection(*args, **kwargs)
    finally:
        authorization.authorizer = authorizer
