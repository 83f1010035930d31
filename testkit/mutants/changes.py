"""Deliberate bugs, made while a test runs by replacing a function or an attribute.

A mutant names its target by an import path: `module:name` or `module:Class.name`. So it survives any change of a
function's text. If a name is gone, or is no longer used where the mistake would be made, `at_large` reports that: then
decide what the mistake would be today.

    without("module:roll", "durability:settle_names")                roll calls it, and nothing happens
    instead("module:Log.recovery_point", always(0), seen_by="...")   the value that one function reads there
    instead("module:Transaction.fenced", lambda fenced: ...)         for all, made from the original

Attributes are replaced as well as functions: a new one is a function of the object.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

import attrs

OURS = ("kwire", "kwire_protocol", "kwire_storage")
"""The packages in which mistakes are made. Not testkit: its checks must not make the mistake."""

Function: TypeAlias = Callable[..., Any]


@attrs.frozen
class Change:
    """`make` gets the function or attribute at `target`, and returns its replacement.

    With `seen_by`, the place of a function, only for what that function calls or reads itself.
    """

    target: str
    make: Callable[[Any], Any]
    seen_by: str | None = None


@attrs.frozen
class Mutant:
    """`trace` is the one that shows it."""

    name: str
    trace: str
    change: Change


def instead(target: str, make: Callable[[Any], Any], *, seen_by: str | None = None) -> Change:
    return Change(target, make, seen_by)


def without(caller: str, target: str) -> Change:
    """Makes the caller's calls of the function at `target` do nothing."""
    return Change(target, always(None), caller)


def always(value: object) -> Callable[[Any], Function]:
    """Returns a `make` for a function that returns `value`, or for an attribute with this value."""
    return lambda _: lambda *_args, **_kwargs: value


@attrs.define
class Made:
    """The number of times that a mistake was made; a replaced constant counts as once."""

    times: int = 0


@contextmanager
def at_large(change: Change) -> Iterator[Made]:
    """The mistake is made as long as this lasts."""
    owner, name = _find(change.target)
    made = Made()
    change = attrs.evolve(change, make=_counted(change.make, made))
    with ExitStack() as stack:
        if isinstance(owner, type):
            _change_class(owner, name, change, stack)
        else:
            original = getattr(owner, name)
            new = _narrowed(change, original, change.make(original)) if callable(original) else change.make(original)
            # Modules that imported it by name have it in a place of their own.
            for module in [it for key, it in sys.modules.items() if key.partition(".")[0] in OURS]:
                for there in [key for key, value in vars(module).items() if value is original]:
                    _put(module, there, new, stack)
        yield made


def _counted(make: Callable[[Any], Any], made: Made) -> Callable[[Any], Any]:
    def counting(original: Any) -> Any:
        mistaken = make(original)
        if not callable(mistaken):
            made.times += 1
            return mistaken

        def counted(*args: Any, **kwargs: Any) -> Any:
            made.times += 1
            return mistaken(*args, **kwargs)

        return counted

    return counting


def _change_class(owner: type, name: str, change: Change, stack: ExitStack) -> None:
    raw = vars(owner).get(name)
    if isinstance(raw, (classmethod, staticmethod)):
        original = raw.__func__
        _put(owner, name, type(raw)(_narrowed(change, original, change.make(original))), stack)
    elif isinstance(raw, FunctionType):
        _put(owner, name, _narrowed(change, raw, change.make(raw)), stack)
    else:
        read, write = _accessors(owner, name, raw)
        _put(owner, name, property(_narrowed(change, read, change.make(read)), write), stack)


def _accessors(owner: type, name: str, raw: Any) -> tuple[Function, Function | None]:
    """Returns the getter and setter of an attribute: its descriptor's, or those of the object's dict."""
    if raw is None or not hasattr(raw, "__get__"):
        return lambda it: it.__dict__[name], lambda it, value: it.__dict__.__setitem__(name, value)
    return lambda it: raw.__get__(it, owner), getattr(raw, "__set__", None)


def _put(owner: type | ModuleType, name: str, new: object, stack: ExitStack) -> None:
    if name in vars(owner):
        stack.callback(setattr, owner, name, vars(owner)[name])
    else:
        stack.callback(delattr, owner, name)
    setattr(owner, name, new)


def _narrowed(change: Change, original: Function, mistaken: Function) -> Function:
    """The mistaken one for the function that the change is seen by, the original one for all others."""
    if change.seen_by is None:
        return mistaken
    name = change.target.rpartition(":")[2].rpartition(".")[2]
    codes = set(_codes(_code_of(change.seen_by)))
    used = {it for code in codes for it in code.co_names}
    assert name in used, f"{change.seen_by} makes no use of {name!r} any more: what is this mistake today?"

    def either(*args: Any, **kwargs: Any) -> Any:
        function = mistaken if sys._getframe(1).f_code in codes else original
        return function(*args, **kwargs)

    return either


def _find(target: str) -> tuple[type | ModuleType, str]:
    """Returns the owner of a target's last name, and that name. Fails if there is none."""
    module, _, path = target.partition(":")
    *classes, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for it in classes:
        owner = getattr(owner, it)
    if isinstance(owner, type):
        # An attribute without a default is known by the function that sets it.
        known = name in vars(owner) or name in owner.__init__.__code__.co_names  # type: ignore[misc]
    else:
        known = hasattr(owner, name)
    assert known, f"there is no {target} any more: what is this mistake today?"
    return owner, name


def _code_of(target: str) -> CodeType:
    owner, name = _find(target)
    function = vars(owner)[name]
    function = inspect.unwrap(getattr(function, "fget", None) or getattr(function, "__func__", function))
    assert isinstance(function, FunctionType), f"{target} is no function"
    return function.__code__


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions and comprehensions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
