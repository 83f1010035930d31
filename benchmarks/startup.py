"""How long from exec to the first acknowledged record, and how much memory an idle broker keeps.

    python -m benchmarks.startup [--runs 10]

A run starts `kwire serve` on an empty folder, waits for its port, lets Metadata create a topic, produces one record
with acks=all and takes the time of the answer; then it leaves the broker alone for two seconds and reads its resident
memory from /proc. Prints medians with their spread.
"""

from __future__ import annotations

import argparse
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kwire_protocol.headers import RequestHeader, read_response_header, write_request_header
from kwire_protocol.messages import APIS
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import ApiMessage, Reader, Writer

IDLE_S = 2.0


def call(sock: socket.socket, request: ApiMessage, version: int) -> ApiMessage:
    """One request, one response, blocking."""
    writer = Writer()
    writer.begin_frame()
    write_request_header(writer, RequestHeader(request.api_key, version, 1, "startup"))
    request.write(writer, version)
    writer.end_frame()
    sock.sendall(writer.getvalue())
    reader = Reader(_receive(sock, int.from_bytes(_receive(sock, 4), "big")))
    read_response_header(reader, request.api_key, version)
    return APIS[request.api_key].response_class.read(reader, version)


def _receive(sock: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = sock.recv(size - len(received))
        if not piece:
            raise ConnectionError("the broker hung up")
        received += piece
    return received


def resident_mib(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    assert match is not None
    return int(match[1]) / 1024


def measure(folder: str) -> tuple[float, float]:
    """Seconds from exec to the first acknowledged record; MiB resident when idle afterwards."""
    command = [sys.executable, "-m", "kwire", "serve", "--listen", "127.0.0.1:0", "--data-dir", folder]
    began = time.perf_counter()
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        match = re.search(r"listening on 127\.0\.0\.1:(\d+)", broker.stdout.readline())
        assert match is not None
        with socket.create_connection(("127.0.0.1", int(match[1]))) as sock:
            created = call(sock, MetadataRequest([MetadataRequestTopic(name="t")], True), 8)
            assert isinstance(created, MetadataResponse)
            batch = build_batch([Record(value=b"first")])
            request = ProduceRequest(
                None, -1, 1000, [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])]
            )
            answer = call(sock, request, 9)
            assert isinstance(answer, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0, answer
        seconds = time.perf_counter() - began
        time.sleep(IDLE_S)
        return seconds, resident_mib(broker.pid)
    finally:
        broker.terminate()
        broker.wait(10)


def _summary(name: str, unit: str, values: list[float]) -> str:
    spread = f"{min(values):.3f} to {max(values):.3f}, {len(values)} runs"
    return f"{name:34} {statistics.median(values):8.3f} {unit}  ({spread})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    measured = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            measured.append(measure(folder))
    print(_summary("exec to first acknowledged record", "s  ", [seconds for seconds, _ in measured]))
    print(_summary("resident memory when idle", "MiB", [mib for _, mib in measured]))


if __name__ == "__main__":
    main()
