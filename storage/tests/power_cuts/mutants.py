"""Deliberate bugs, made by changing a few words of a function's source while a test runs.

A mutant names its place and the words, so that the table of them reads as a list of mistakes one could make. Where the
words are no longer there the mutant says so: then find what it stands for now.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType

import attrs
import pytest

from storage.tests.power_cuts.sweep import Bounds, BrokenPromise, Tally, Trace, sweep

NO_LIVES = 10**9
QUICK = (
    Bounds(states=8, lives=NO_LIVES),
    Bounds(states=40, lives=NO_LIVES),
    Bounds(states=4, states_again=2, lives=6),
)
"""One after the other; last with next lives, which take most of the time."""


@attrs.frozen
class Mutant:
    """`place` is `module:name` or `module:Class.name`; `old` becomes `new` wherever it stands in its source.

    `trace` is the one that shows it.
    """

    name: str
    trace: str
    place: str
    old: str
    new: str


@contextmanager
def at_large(mutant: Mutant) -> Iterator[None]:
    """The mistake is made as long as this lasts."""
    function = _function(mutant.place)
    source = textwrap.dedent(inspect.getsource(function))
    assert mutant.old in source, f"{mutant.place} has no {mutant.old!r} any more: what is this mistake today?"
    code = function.__code__
    function.__code__ = _code_of(source.replace(mutant.old, mutant.new), function)
    try:
        yield
    finally:
        function.__code__ = code


def _function(place: str) -> FunctionType:
    module, _, path = place.partition(":")
    found: object = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    function = getattr(found, "__func__", found)
    assert isinstance(function, FunctionType)
    return function


def _code_of(source: str, function: FunctionType) -> CodeType:
    compiled = compile(source, function.__code__.co_filename, "exec", flags=annotations.compiler_flag)
    return next(it for it in compiled.co_consts if isinstance(it, CodeType) and it.co_name == function.__name__)


def expect_caught(trace: Callable[[str], Trace], name: str) -> BrokenPromise:
    """Sweeps the trace of that name until something is wrong, and fails if nothing is."""
    try:
        for bounds in QUICK:
            sweep(trace(name), bounds, tally=Tally())
    except BrokenPromise as broken:
        return broken
    pytest.fail("no state of the trace shows the mistake")
