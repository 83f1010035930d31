"""Written messages are read again; wrong bytes are a ProtocolError or another value. Every message and version."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from typing import Any

import pytest
from codegen.layout import Sizes
from codegen.schema import Field
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kwire_protocol.wire import ProtocolError, Reader, UnsupportedField, UnsupportedVersion, Writer

from devtools.suite.tiers import examples
from testkit.messages.catalogue import Entry, messages, naming
from testkit.messages.values import difference, filled, least, most, values

EXAMPLES_PER_VERSION = examples(1)
HUGE = (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff", b"\x80\x80\x80\x80\x00")


def written(value: Any, version: int) -> bytes:
    w = Writer()
    value.write(w, version)
    return w.getvalue()


def written_alone(struct: Any, version: int) -> bytes:
    """Writes a struct of a message, which is in arrays only if it has no `write`."""
    if hasattr(struct, "write"):
        return written(struct, version)
    empty, one = Writer(), Writer()
    type(struct).write_array([], empty, version)
    type(struct).write_array([struct], one, version)
    return one.getvalue()[len(empty.getvalue()) :]


def assert_round_trip(entry: Entry, version: int, value: Any) -> bytes:
    data = written(value, version)
    assert_read(entry, version, data, value)
    return data


def assert_read(entry: Entry, version: int, data: bytes, value: Any) -> None:
    r = Reader(data)
    read = entry.cls.read(r, version)
    assert read == value, difference(read, value)
    assert r.remaining == 0


def assert_every_cut_is_noticed(entry: Entry, version: int, data: bytes, cuts: range) -> None:
    for cut in cuts:
        with pytest.raises(ProtocolError):
            entry.cls.read(Reader(data[:cut]), version)


def read_or_refuse(entry: Entry, version: int, data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        entry.cls.read(Reader(data), version)


def fields_lacking(entry: Entry) -> list[tuple[int, str, Field]]:
    return [
        (version, struct, field)
        for version, struct, field in entry.fields_by_version()
        if version not in field.versions
    ]


def fields_null_elsewhere(entry: Entry) -> list[tuple[int, str, Field]]:
    """Returns those that may be null, but not in this version."""
    return [
        (version, struct, field)
        for version, struct, field in entry.fields_by_version()
        if version in field.versions and version not in field.nullable and field.nullable & entry.message.versions
    ]


@messages()
def test_extremes_survive(entry: Entry) -> None:
    for version in entry.message.versions:
        with naming(entry, version):
            assert_round_trip(entry, version, entry.cls())
            assert_round_trip(entry, version, least(entry, version))
            assert_round_trip(entry, version, least(entry, version, elements=2))
            assert_round_trip(entry, version, most(entry, version))


@messages()
def test_any_value_survives_and_any_cut_of_it_is_noticed(entry: Entry) -> None:
    versions = list(entry.message.versions)

    @settings(
        max_examples=EXAMPLES_PER_VERSION * len(versions),
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=st.sampled_from(versions).flatmap(lambda version: st.tuples(st.just(version), values(entry, version))),
        noise=st.randoms(use_true_random=False),
    )
    def any_value(case: tuple[int, Any], noise: random.Random) -> None:
        version, value = case
        with naming(entry, version):
            data = assert_round_trip(entry, version, value)
            assert_every_cut_is_noticed(entry, version, data, range(0, len(data), 1 + len(data) // 10))
            for _ in range(3 if data else 0):
                changed = bytearray(data)
                changed[noise.randrange(len(data))] = noise.randrange(256)
                read_or_refuse(entry, version, bytes(changed))

    any_value()


@messages()
def test_a_lie_at_any_place_costs_neither_another_exception_nor_memory(entry: Entry) -> None:
    for version in entry.message.versions:
        with naming(entry, version):
            data = written(most(entry, version, length=5), version)
            assert_every_cut_is_noticed(entry, version, data, range(0, len(data), 1 + len(data) // 50))
            tracemalloc.start()
            try:
                for at in range(0, len(data), 1 + len(data) // 25):
                    for lie in HUGE:
                        read_or_refuse(entry, version, data[:at] + lie + data[at + len(lie) :])
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < 100_000 + 100 * len(data)


@messages(lambda entry: entry.message.flexible)
def test_unknown_tagged_fields_are_skipped(entry: Entry) -> None:
    for version in entry.message.flexible:
        with naming(entry, version):
            value = least(entry, version, with_tags=False)
            data = written(value, version)
            assert data.endswith(b"\0")
            with_tags = data[:-1] + b"\x02" + b"\xc8\x01" + b"\x03abc" + b"\xc9\x01" + b"\x00"
            assert_read(entry, version, with_tags, value)


@messages(fields_lacking)
def test_fields_that_a_version_lacks_are_refused_unless_ignorable(entry: Entry) -> None:
    for version, struct, field in fields_lacking(entry):
        with naming(entry, version, field):
            value = least(entry, version, struct)
            without = written_alone(value, version)
            setattr(value, field.attribute, filled(entry, field))
            if field.ignorable:
                assert written_alone(value, version) == without
            else:
                with pytest.raises(UnsupportedField, match=field.attribute):
                    written_alone(value, version)


@messages(fields_null_elsewhere)
def test_null_is_refused_by_versions_that_do_not_allow_it(entry: Entry) -> None:
    for version, struct, field in fields_null_elsewhere(entry):
        with naming(entry, version, field):
            value = least(entry, version, struct)
            setattr(value, field.attribute, None)
            with pytest.raises(ValueError, match=field.attribute):
                written_alone(value, version)


@messages(lambda entry: entry.message.structs)
def test_the_sizes_that_bound_counts_are_the_least_there_are(entry: Entry) -> None:
    sizes = Sizes(entry.message)
    for version in entry.message.versions:
        for struct in entry.message.structs:
            if version in struct.versions:
                with naming(entry, version):
                    smallest = least(entry, version, struct.name, with_tags=False)
                    assert sizes.of_struct(struct, version) == len(written_alone(smallest, version)), struct.name


@messages()
def test_other_versions_are_refused(entry: Entry) -> None:
    versions = entry.message.versions
    assert entry.cls.versions == range(versions.low, versions.high + 1)
    for version in (versions.low - 1, versions.high + 1):
        with naming(entry, version):
            with pytest.raises(UnsupportedVersion):
                entry.cls.read(Reader(bytes(1000)), version)
            with pytest.raises(UnsupportedVersion):
                written(entry.cls(), version)
