"""README.md does what it shows: its first minute, and its blocks for clients and for pytest.

A broker on a free port replaces 127.0.0.1:9092; nothing else is changed. spark_tests/test_readme.py runs Spark's block.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from devtools.markdown import fenced_blocks
from devtools.places import REPOSITORY
from kwire.testing import Broker
from testkit.clients.confluent import read_all
from testkit.clients.kcat import KCAT
from testkit.pages.readme_blocks import PRINTED_ADDRESS, README, block_with

ENDS_WITHIN_S = 120

_VARIES = (r"cluster \S+,", r"\d{4}-\d\d-\d\dT[\d:.]+Z")


@attrs.frozen
class Step:
    """A command at a prompt, with the lines that the page shows below it."""

    prompt: str
    command: str
    output: str


def steps(transcript: str) -> list[Step]:
    found: list[Step] = []
    for line in transcript.splitlines():
        prompt, _, command = line.partition(" ")
        if prompt in ("$", ">>>"):
            found.append(Step(prompt, command, ""))
        else:
            found[-1] = attrs.evolve(found[-1], output=f"{found[-1].output}{line}\n")
    return found


def without_what_varies(text: str) -> str:
    for pattern in _VARIES:
        text = re.sub(pattern, "...", text)
    return text


def run(command: list[str], folder: Path, *, stdin: str = "") -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The line that `kwire serve` prints, in the folder of the test."""
    command = [sys.executable, "-m", "kwire", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.terminate()
            process.wait(ENDS_WITHIN_S)


def test_the_first_minute_goes_as_printed(tmp_path: Path, served: str) -> None:
    address = served.split()[4]
    start, *typed, stop = steps(block_with("$ kwire serve").text)
    assert (start.command, stop.command) == ("kwire serve &", "kill %1")
    assert without_what_varies(served.replace(address, PRINTED_ADDRESS)) == without_what_varies(start.output)

    python = [step for step in typed if step.prompt == ">>>" and step.command != "exit()"]
    prompt = "".join(f">>> {step.command}\n{step.output}" for step in python)
    assert len(python) >= 4
    (tmp_path / "prompt.txt").write_text(prompt.replace(PRINTED_ADDRESS, address))
    run([sys.executable, "-m", "doctest", "prompt.txt"], tmp_path)

    shell = [step for step in typed if step.prompt == "$" and step.command != "python"]
    assert shell
    for step in shell:
        printed = run(shlex.split(step.command), tmp_path)
        assert without_what_varies(printed) == without_what_varies(step.output)


def test_the_block_of_confluent_kafka_produces(tmp_path: Path) -> None:
    with Broker() as broker:
        run(
            [sys.executable, "-"],
            tmp_path,
            stdin=block_with("confluent_kafka").text.replace(PRINTED_ADDRESS, broker.address),
        )
        (record,) = read_all(broker.address, "orders", 1)
    assert (record.key(), record.value()) == (b"43", b"one tea")


@pytest.mark.skipif(KCAT is None, reason="MISSING TEST: kcat is not installed, so nothing is known of it here")
def test_the_block_of_kcat_reads_what_it_wrote(tmp_path: Path) -> None:
    assert KCAT is not None
    with Broker() as broker:
        text = block_with("| kcat").text.replace(PRINTED_ADDRESS, broker.address).replace("kcat ", f"{KCAT} ")
        assert "a glass of water\n" in run(["sh", "-e", "-c", text], tmp_path)


def test_the_block_for_pytest_passes(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(block_with("kwire_broker):").text)
    assert "1 passed" in run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=."], tmp_path)


def test_no_block_of_python_is_left_out() -> None:
    run_by_tests = {block_with(word) for word in ("confluent_kafka", "kwire_broker):", "spark.readStream")}
    assert {block for block in fenced_blocks(README) if block.language == "python"} == run_by_tests


def test_its_figures_are_those_of_the_benchmarks() -> None:
    row = re.compile(r"^\| `([\w-]+)` \|[^|]*\| +([\d.,]+) \| +([\d.,]+) \|$", re.MULTILINE)
    shown = row.findall(README.read_text(encoding="utf-8"))
    measured = [
        [cell.strip() for cell in line.split("|")[1:]]
        for line in (REPOSITORY / "benchmarks" / "README.md").read_text(encoding="utf-8").splitlines()
    ]
    assert len(shown) >= 6
    for scenario, kafka, kwire in shown:
        assert any(cells[:1] == [scenario] and cells[2:4] == [kafka, kwire] for cells in measured), scenario
