"""`python -m benchmarks`: kwire beside Apache Kafka. See README.md."""

from __future__ import annotations

import signal
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import attrs
import click

from benchmarks import bytecodes, machine, scenarios  # noqa: F401 - the latter registers them all
from benchmarks.bench import SCENARIOS, Scenario
from benchmarks.brokers.single import Lab, Spec
from benchmarks.options import QUICK, STANDARD, Options
from benchmarks.results.report import render
from benchmarks.results.stored import Results
from benchmarks.runner import Runner
from devtools.places import CACHE

_TIMES = {
    "run_s": "Seconds that a round measures.",
    "warm_cpu_s": "CPU seconds that a broker works before it is measured.",
    "warm_s": "The longest warm-up by the clock.",
    "fill_mib": "Size of what is read by those that read.",
    "stored_mib": "Size of what the start- scenarios find; twice that, the room they take.",
    "table_records": "Records in the topic that the pipeline- scenarios find, 200 bytes each.",
    "growth_to": "The last step of the growth scenarios.",
}


class _RunByDefault(click.Group):
    """Takes options without a command as those of `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_RunByDefault, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Measures brokers with the same clients, on the same cores, in turn.

    Without a command it runs: Apache Kafka and kwire, every scenario, five rounds, the bare limits. The first --broker
    is the baseline; of the others, ratios to it are shown.
    """


@main.command("list")
def list_scenarios() -> None:
    """The scenarios."""
    for scenario in SCENARIOS.values():
        click.echo(f"{scenario.name:24}{scenario.about}")


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--scenario", "names", multiple=True, metavar="NAME", help="Only this one; may be repeated.")
def report(files: tuple[Path, ...], names: tuple[str, ...]) -> None:
    """Tables from the JSON that a run wrote, or several that make up one."""
    results, *others = map(Results.load, files)
    for other in others:
        results.add(other)
    click.echo(render(results, [scenario.name for scenario in _chosen(names)] if names else ()))


@main.command("bytecodes")
@click.option("--functions", default=0, help="List so many of the dearest functions of each request, too.")
def count_bytecodes(functions: int) -> None:
    """Counts the bytecodes that kwire executes for a request: a cost that other work on the machine does not move."""
    click.echo(bytecodes.render(bytecodes.count(), functions))


def _size_options(command: click.Command) -> click.Command:
    for field in attrs.fields(Options):
        if field.name in _TIMES:
            name = f"--{field.name.replace('_', '-')}"
            text = f"{_TIMES[field.name]} [default: {field.default:g}]"
            command.params.append(click.Option([name], type=type(field.default), help=text))
    return command


@_size_options
@main.command()
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    default=["kafka", "kwire"],
    show_default=True,
    metavar="NAME[=WHAT]",
    help="kafka, kwire, NAME=kafka:SETTING=VALUE,... or NAME='a command with {data} and {port}'.",
)
@click.option("--scenario", "names", multiple=True, metavar="NAME", help="Or a pattern such as 'raw-*'. [default: all]")
@click.option("--rounds", type=click.IntRange(1), help="[default: 5; with --quick: 2]")
@click.option("--starts", type=click.IntRange(1), default=1, show_default=True, help="How often to do all that again.")
@click.option("--limits/--no-limits", "with_limits", default=True, show_default=True, help="The bare limits, too.")
@click.option("--quick", is_flag=True, help="Short and cold: for a look, not for a figure to quote.")
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=CACHE / "bench.json",
    show_default=".cache/bench.json",
    help="Written after every step.",
)
@click.option("--broker-cores", help="Such as 0 or 0,2 or 0-3. [default: the first]")
@click.option("--client-cores", help="[default: the second]")
@click.option(
    "--data-root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where brokers keep their data. [default: the temporary folder]",
)
def run(
    brokers: tuple[str, ...],
    names: tuple[str, ...],
    rounds: int | None,
    starts: int,
    with_limits: bool,
    quick: bool,
    file: Path,
    broker_cores: str | None,
    client_cores: str | None,
    data_root: Path | None,
    **sizes: float | None,
) -> None:
    """Measure."""
    specs = [Spec.parse(text) for text in brokers]
    if len({spec.name for spec in specs}) < len(specs):
        raise click.UsageError("each broker needs a name of its own: NAME=WHAT")
    given: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    options = attrs.evolve(QUICK if quick else STANDARD, **given)
    rounds = rounds or (2 if quick else 5)
    first, *more = machine.own_cores()
    try:
        broker_on = machine.parse_cores(broker_cores or str(first))
        client_on = machine.parse_cores(client_cores or str((more or [first])[0]))
    except ValueError:
        raise click.UsageError("cores are given as 0, 0,2 or 0-3") from None
    chosen = _chosen(names)
    signal.signal(signal.SIGTERM, _end_in_order)
    machine.allow_open_files()
    file.parent.mkdir(parents=True, exist_ok=True)
    results = Results.new({spec.name: spec.command for spec in specs}, options)
    lab = Lab(broker_on, data_root)
    runner = Runner(lab, specs, options, results, with_limits, file, lambda line: click.echo(line, err=True))
    with machine.pinned(client_on):
        try:
            for scenario in chosen:
                for start in range(starts):
                    runner.play(scenario, range(start * rounds, (start + 1) * rounds))
        finally:
            lab.close()
    click.echo(render(results))
    sys.exit(int(any(entry.error for entry in results.entries)))


def _end_in_order(number: int, _: object) -> None:
    """Unwinds, so that what was started is stopped and removed. A second signal must not disturb that."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _chosen(names: tuple[str, ...]) -> list[Scenario]:
    for name in names:
        if not any(fnmatchcase(known, name) for known in SCENARIOS):
            raise click.UsageError(f"no scenario {name}; `list` shows them")
    return [scenario for name, scenario in SCENARIOS.items() if not names or any(fnmatchcase(name, n) for n in names)]


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
