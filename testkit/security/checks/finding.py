"""Finds the checks in a module's code, and breaks one of them.

    if a or b:                      two checks: as if a, or b, were never so
        raise Refused
    if not (a and b): raise ...     two checks: as if a, or b, were always so
    if not 1 <= a <= 9: raise ...   two checks: as if one of the bounds were not there
    raise Refused                   at the end of a function: as if it ended there
    except (A, B): raise Refused    two checks: as if A, or B, were not caught
    min(a, b)                       two checks: as if one of the bounds were not there
    check_name(name)                as if it were not called; so are all functions that are named check...
    compare_digest(one, other)      as if they were the same
    authorization.allows(...)       in handlers, where only calls of the authorizer count: as if it allowed everything

A check is identified by its file, its function and its text, so it keeps its name when lines move.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

import attrs

LOGINS: Final = frozenset(("sasl_handshake.py", "sasl_authenticate.py"))
"""Handlers that refuse on their own: a client that logs in has no principal for the authorizer."""
DECIDING: Final = LOGINS.union(("access", "acls", "quotas", "oauth", "throttling.py"))
"""Folders and files whose code answers questions, where others refuse: there `if ...: return` is a check, too, and so
are each condition of `return a and b` and each error of `except ...: return`."""
CHECK_METHODS: Final = frozenset(("check", "check_configs"))
"""The methods of the authorizer that handlers call: these raise a refusal,"""
QUESTIONS: Final = frozenset(("allows", "allows_any"))
"""these return True or False,"""
SELECTIONS: Final = frozenset(("divided", "finder", "cluster_operations", "operations"))
"""and these return what is allowed. All are methods of an `Authorization`."""
GRANTING: Final = "testkit.security.checks.breaking:granting"
"""Calls a selection of an authorization that allows everything."""


@attrs.frozen
class Check:
    """`path` is that of its file in the repository. `number`: which of those in the function with the same text."""

    path: str
    function: str
    text: str
    number: int

    @property
    def name(self) -> str:
        again = f" ({self.number + 1})" if self.number else ""
        return f"{self.path} {self.function}: {self.text}{again}"


def checks_of(path: str, source: str) -> list[Check]:
    return [check for check, _, _ in _found(path, ast.parse(source))]


def broken(check: Check, source: str) -> ast.Module:
    """The module without that check. Raises LookupError if it does not have it."""
    tree = ast.parse(source)
    for it, node, instead in _found(check.path, tree):
        if it == check:
            _Replacing(node, instead).visit(tree)
            return ast.fix_missing_locations(tree)
    raise LookupError(f"there is no such check: {check.name}")


class _Replacing(ast.NodeTransformer):
    def __init__(self, node: ast.AST, instead: ast.AST) -> None:
        self._node = node
        self._instead = ast.copy_location(instead, node)

    def visit(self, node: ast.AST) -> ast.AST:
        return self._instead if node is self._node else super().visit(node)


def _found(path: str, tree: ast.Module) -> Iterator[tuple[Check, ast.AST, ast.AST]]:
    """Each check, where it is, and what stands there when it is broken."""
    seen: Counter[tuple[str, str]] = Counter()
    for function, node in _statements_and_calls(tree, ""):
        for part, instead, shown in _checks_at(node, path):
            text = " ".join(ast.unparse(shown).split())
            yield Check(path, function, text, seen[function, text]), part, instead
            seen[function, text] += 1


def _statements_and_calls(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        within = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            within = f"{function}.{child.name}".lstrip(".")
        yield within, child
        yield from _statements_and_calls(child, within)


def _checks_at(node: ast.AST, path: str) -> Iterator[tuple[ast.AST, ast.AST, ast.AST]]:
    """Each check, what stands there when it is broken, and what it is called by."""
    parts = PurePosixPath(path).parts
    is_handler = "handlers" in parts and parts[-1] not in LOGINS
    match node:
        case ast.Expr(value=ast.Call(func=called)) if is_handler and _name(called) in CHECK_METHODS:
            yield node, ast.Pass(), node
        case ast.Call(func=called) if is_handler and _name(called) in QUESTIONS:
            yield node, ast.Constant(True), node
        case ast.Call(func=called, args=arguments) if (
            is_handler and _name(called) in SELECTIONS and isinstance(called, ast.Attribute)
        ):
            yield node, ast.Call(_granting(), [called, *arguments], node.keywords), node
        case ast.If(test=test, body=[*_, ast.Raise()]) if not is_handler:
            yield from _conditions(test)
        case ast.FunctionDef(body=[*_, ast.Raise(exc=ast.Call(func=raised)) as last]) if not is_handler:
            if _name(raised) != "AssertionError":  # it is for who reads the code
                yield last, ast.Pass(), last
        case ast.Expr(value=ast.Call(func=called)) if not is_handler and _name(called).lstrip("_").startswith("check"):
            yield node, ast.Pass(), node
        case ast.If(test=test, body=[*_, ast.Return()]) if DECIDING.intersection(parts):
            yield from _conditions(test)
        case ast.ExceptHandler(type=ast.expr() as caught, body=[*_, ast.Raise()]) if not is_handler:
            yield from _errors(caught)
        case ast.ExceptHandler(type=ast.expr() as caught, body=[*_, ast.Return()]) if DECIDING.intersection(parts):
            yield from _errors(caught)
        case ast.Return(value=ast.BoolOp(op=ast.And(), values=conditions)) if DECIDING.intersection(parts):
            for condition in conditions:
                yield condition, ast.Constant(True), condition
        case ast.Call(func=ast.Name("min") as called, args=[_, _, *_] as bounds, keywords=[]) if not is_handler:
            for bound in bounds:
                rest = [it for it in bounds if it is not bound]
                instead = ast.Call(called, rest, []) if len(rest) > 1 else rest[0]
                yield node, instead, ast.Call(called, [bound], [])
        case ast.Call(func=called) if _name(called) == "compare_digest":
            yield node, ast.Constant(True), node


def _conditions(test: ast.expr) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    """Yields the conditions of which one is enough."""
    match test:
        case ast.BoolOp(op=ast.Or(), values=conditions):
            for condition in conditions:
                yield from _conditions(condition)
        case ast.UnaryOp(op=ast.Not() as no, operand=ast.BoolOp(op=ast.And(), values=conditions)):
            for condition in conditions:
                yield condition, ast.Constant(True), ast.UnaryOp(no, condition)
        case ast.UnaryOp(
            op=ast.Not() as no, operand=ast.Compare(left=least, ops=[from_, to], comparators=[it, most]) as bounds
        ):
            lower, upper = ast.Compare(least, [from_], [it]), ast.Compare(it, [to], [most])
            yield bounds, upper, ast.UnaryOp(no, lower)
            yield bounds, lower, ast.UnaryOp(no, upper)
        case _:
            yield test, ast.Constant(False), test


def _errors(caught: ast.expr) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    """Yields the caught errors, each shown as `except Error`."""
    errors = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    for error in errors:
        rest = [it for it in errors if it is not error]
        yield caught, ast.Tuple(rest, ast.Load()), ast.Name(f"except {ast.unparse(error)}")


def _granting() -> ast.expr:
    """`granting` of `breaking.py`, whatever names the module has."""
    source = f"__import__({GRANTING.partition(':')[0]!r}, fromlist=['']).{GRANTING.partition(':')[2]}"
    return ast.parse(source, mode="eval").body


def _name(called: ast.expr) -> str:
    match called:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
