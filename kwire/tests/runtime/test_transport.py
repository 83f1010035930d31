"""A connection's duties to its client whatever its bytes go through, however they are cut on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kwire_storage.disk.files import RealDisk

from kwire.runtime.transport import PlainTransport
from testkit.scenes.processor_scene import new_pair
from testkit.scenes.server_in_trio import ServerInTrio, with_server
from testkit.scenes.tapped_transport import NO_LIMIT, TappedTransport, tap
from testkit.scenes.transport_scene import REQUEST_BYTES, answers_through, produce_some


def test_requests_that_arrive_in_two_pieces_cut_anywhere_are_answered_alike() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await produce_some(kwire)
        expected = await answers_through(kwire, PlainTransport)
        for cut in range(1, len(REQUEST_BYTES)):
            taps: list[TappedTransport] = []
            assert await answers_through(kwire, tap(taps, receives=[cut, NO_LIMIT])) == expected
            assert (bytes(taps[0].received), bytes(taps[0].sent)) == (REQUEST_BYTES, expected)

    with_server(scenario)


@pytest.mark.parametrize("sizes", [(1,), (1, 0), (0, 0, 7), (0, 4096)])
def test_bytes_that_trickle_in_and_out_make_the_same_answers(sizes: tuple[int, ...]) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await produce_some(kwire)
        expected = await answers_through(kwire, PlainTransport)
        assert await answers_through(kwire, tap([], receives=sizes)) == expected
        assert await answers_through(kwire, tap([], sends=sizes)) == expected
        assert await answers_through(kwire, tap([], receives=sizes, sends=sizes)) == expected

    with_server(scenario)


SIZES = st.lists(st.integers(0, 300), min_size=1, max_size=8).filter(any)


@settings(max_examples=25)
@given(receives=SIZES, sends=SIZES)
def test_whatever_is_received_and_sent_at_once_the_answers_are_the_same(receives: list[int], sends: list[int]) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await produce_some(kwire)
        expected = await answers_through(kwire, PlainTransport)
        assert await answers_through(kwire, tap([], receives=receives, sends=sends)) == expected

    with_server(scenario)


def test_records_of_a_real_file_pass_through_a_transport_that_cannot_send_files(tmp_path: Path) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await produce_some(kwire)
        taps: list[TappedTransport] = []
        assert await answers_through(kwire, tap(taps)) == await answers_through(kwire, PlainTransport)
        assert b"c" * 5000 in taps[0].sent

    with_server(scenario, disks={"/data": RealDisk(tmp_path)})


def test_a_plain_transport_that_is_closed_sends_no_file_to_the_next_owner_of_its_descriptor() -> None:
    pair = new_pair()
    with pair.far:
        transport = PlainTransport(pair.near)
        transport.close()
        assert transport.send_file is None
        with pytest.raises(OSError, match="descriptor"):
            transport.send(b"x", 0)
