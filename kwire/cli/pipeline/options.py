"""Options that several commands share, option files, and errors reported in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import attrs
import click


@contextmanager
def one_line_errors(
    command: str = "kwire pipeline", packages: Sequence[str] = (), *, whose: str = ""
) -> Iterator[None]:
    """Ends the command with one line and exit code 2 for an error that the user can fix.

    packages: the Python packages that the command needs [default: those of the jobs].
    whose: the words of the error message before "pip install".
    """
    from kwire.pipeline.errors import PipelineError
    from kwire.pipeline.session import check_packages

    try:
        if packages:
            check_packages(packages, whose=whose)
        else:
            check_packages()
        yield
    except PipelineError as error:
        click.echo(f"{command}: {error}", err=True)
        sys.exit(2)


def options(*several: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Several options as one decorator. --help lists them in this order."""

    def with_them(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(several):
            command = option(command)
        return command

    return with_them


def _from_file(context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """Uses the file's options as the defaults of the flags."""
    if path is not None:
        with one_line_errors():
            from kwire.pipeline.files import read_options

            found = read_options(path)
        known = dict(_names(context.command))
        unknown = sorted(set(found) - set(known))
        if unknown:
            raise click.UsageError(f"{path} has options that {context.info_name} does not have: {', '.join(unknown)}")
        context.default_map = {str(known[name].name): _as_given(name, known[name], it) for name, it in found.items()}
    return path


def _names(command: click.Command) -> Iterator[tuple[str, click.Parameter]]:
    """The names allowed in a file: the long flags with _ for -, and the name of the argument."""
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            yield str(parameter.name), parameter
        elif parameter.name != "file":
            for flag in parameter.opts:
                if flag.startswith("--"):
                    yield flag.removeprefix("--").replace("-", "_"), parameter


def _as_given(name: str, parameter: click.Parameter, value: object) -> object:
    """A file's value as the command line would pass it. Raises UsageError for one of the wrong shape."""
    several = parameter.nargs == -1 or (isinstance(parameter, click.Option) and parameter.multiple)
    if isinstance(value, Mapping) and parameter.callback is _settings:
        return [f"{key}={_text(it)}" for key, it in value.items()]
    items = value if isinstance(value, list) else [value]
    if any(isinstance(it, (Mapping, list)) for it in items) or not (several or items is not value):
        raise click.UsageError(f"{name} takes {'values' if several else 'one value'}, not {value!r}")
    if several:
        return [_text(it) for it in items]
    return value if isinstance(value, bool) else _text(value)


def _text(value: object) -> str:
    """Returns the value as text, booleans as Java writes them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _settings(_context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Returns a dictionary of several NAME=VALUE."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param=parameter)
        found[name.strip()] = value.strip()
    return found


def settings(flag: str, text: str) -> Callable[..., Any]:
    """An option that takes NAME=VALUE and may be repeated."""
    return click.option(flag, multiple=True, callback=_settings, metavar="NAME=VALUE", help=text)


BROKER = click.option(
    "-b",
    "--bootstrap-server",
    "bootstrap",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="Broker of the cluster, or several separated by commas.",
)
WAREHOUSE = click.option(
    "--to",
    "warehouse",
    required=True,
    metavar="WAREHOUSE",
    help="Folder that holds the tables and their catalog; or catalog:NAME, configured by --conf.",
)
TABLE = click.option("--table", "table_name", metavar="NAME", help="Name of the table.  [default: the topic's]")
INDEX_TABLE = click.option("--table", "table_name", metavar="NAME", help="Name of the index.  [default: TOPIC__index]")
SOURCE_OPTION = click.option(
    "--option",
    "source_options",
    multiple=True,
    callback=_settings,
    metavar="NAME=VALUE",
    help="Option of Spark's kafka source, such as kafka.security.protocol=SSL. Repeatable.",
)
CATALOG_CONF = settings("--conf", "Setting of the catalog, under Spark's name. Repeatable.")
SPARK = options(
    click.option("--master", metavar="URL", help="Spark master, or use spark-submit.  [default: local[*]]"),
    settings("--conf", "Spark setting. Repeatable."),
)
FILE = click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_from_file,
    help="Read options from a YAML or TOML file; flags override it.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, with stable names.")
FROM = click.option(
    "--from", "first", default="earliest", show_default=True, metavar="BOUND", help="Start of the range."
)
EXISTING_TABLE = options(click.argument("topic"), BROKER, WAREHOUSE, TABLE)
"""The options that name an existing table and its topic."""
EXISTING_TABLE_WITH = options(SOURCE_OPTION, SPARK, FILE, JSON)
"""The options for how Spark accesses it."""


def begin(text: str) -> Callable[..., Any]:
    return click.option(
        "--begin", type=click.Choice(["earliest", "latest"]), default="earliest", show_default=True, help=text
    )


ON_GAP = click.option(
    "--on-gap",
    type=click.Choice(["fail", "record"]),
    default="fail",
    show_default=True,
    help="What to do if records were deleted before they were read.",
)
READING = options(
    click.option(
        "--isolation",
        type=click.Choice(["read_committed", "read_uncommitted"]),
        default="read_committed",
        show_default=True,
    ),
    begin("Where to start a new table."),
    ON_GAP,
    click.option(
        "--group",
        metavar="GROUP",
        help="Consumer group that publishes the table's offsets for lag tools.  [default: kwire-pipeline-TABLE]",
    ),
)
ONCE = click.option("--once", is_flag=True, help="Process what is there, then exit.")


def interval(default_s: float, text: str) -> Callable[..., Any]:
    return click.option(
        "--interval",
        "interval_s",
        type=click.FloatRange(min=0, max=86_400),
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        help=text,
    )


MAX_RECORDS = click.option(
    "--max-records-per-commit",
    type=click.IntRange(min=1),
    default=5_000_000,
    show_default=True,
    metavar="N",
    help="Maximum number of records per topic in a commit.",
)
PATIENCE = click.option(
    "--give-up-after",
    "give_up_after_s",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for unreachable brokers.",
)
METRICS = click.option(
    "--metrics-port", type=click.IntRange(0, 65_535), metavar="PORT", help="Serve Prometheus metrics on 127.0.0.1."
)
DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Check the plan, print it with its starting offsets, and do nothing."
)
RUNNING = options(PATIENCE, METRICS, SPARK, FILE, JSON, DRY_RUN)
"""The options for running any job: see `Running`."""


@attrs.frozen(kw_only=True)
class Running:
    """The values of RUNNING."""

    give_up_after_s: float
    metrics_port: int | None
    conf: dict[str, str]
    master: str | None
    as_json: bool
    dry_run: bool

    @classmethod
    def taken_from(cls, given: dict[str, Any]) -> Self:
        """Removes its own values from a command's options."""
        return cls(**{it.name: given.pop(it.name) for it in attrs.fields(cls)})
