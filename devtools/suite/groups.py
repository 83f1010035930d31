"""The groups of tests: the tests of each, its budget, and the parts of it that stay together in one process.

Tests are shared out by unit. What starts something dear once for many tests (a Spark session, an Apache Kafka, a Java
process) is one unit, or one for each module; what is pure may be split into single tests, so that no process ends long
after the others. To add a group, name its folder or its files here; a file is in the group that names it most exactly.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import cache

import attrs


class Unit(Enum):
    """The part of a group that goes to a process as a whole."""

    GROUP = auto()
    MODULE = auto()
    TEST = auto()


class Tier(Enum):
    """The runs that have budgets: `make test` and `make test-more`."""

    TEST = "test"
    MORE = "more"


@attrs.frozen
class Group:
    """`test_cpu_s`: CPU seconds of its tests in `make test`, and of all that they start. Twice that fails the run.

    `more_cpu_s`: the same in `make test-more`. `paths`: folders, and beginnings of files' names.
    """

    name: str
    unit: Unit
    test_cpu_s: int
    more_cpu_s: int
    paths: tuple[str, ...]

    def budget_of(self, tier: Tier) -> int:
        return self.test_cpu_s if tier is Tier.TEST else self.more_cpu_s


# In the order in which they begin: what takes long first.
GROUPS = (
    # All in `make test-more`: a Spark session takes 14 CPU seconds until its first job has run, and the first table 20.
    Group("tables", Unit.GROUP, 0, 230, ("spark_tests/pipeline/",)),
    Group(
        "Spark",
        Unit.GROUP,
        50,
        180,
        (
            "spark_tests/",
            "spark_tests/pipeline/test_mirror",
            "spark_tests/pipeline/test_replay",
            "spark_tests/pipeline/test_upsert",
        ),
    ),
    Group("everything at once", Unit.MODULE, 8, 25, ("compat_tests/test_everything",)),
    Group(
        "Apache Kafka",
        Unit.GROUP,
        0,
        120,
        (
            "compat_tests/test_groups_change_brokers",
            "compat_tests/test_partition_moves",
            "kwire/tests/cli/test_log_kafka",
            "kwire/tests/share/leader/kafka/",
            "storage/tests/directory/test_kafka_",
            "storage/tests/log/test_kafka_",
            "devtools/tests/test_apache_kafka",
        ),
    ),
    Group(
        "killed",
        Unit.MODULE,
        10,
        85,
        ("compat_tests/test_sigkill", "compat_tests/test_bank", "compat_tests/test_streams"),
    ),
    Group(
        "Java clients",
        Unit.GROUP,
        30,
        0,
        ("compat_tests/test_java", "compat_tests/test_dump_log_segments", "compat_tests/test_share_state_files"),
    ),
    # One broker with secured listeners for all of them, and one Java process.
    Group(
        "secured listeners",
        Unit.GROUP,
        30,
        0,
        ("compat_tests/test_secured_", "compat_tests/test_reauthentication", "compat_tests/test_changes_while_"),
    ),
    Group("clients", Unit.MODULE, 150, 45, ("compat_tests/",)),
    # One server for all of them.
    Group("ZooKeeper", Unit.GROUP, 20, 0, ("kwire/tests/cluster/zookeeper/", "kwire/tests/cluster/test_ordered_log")),
    Group("simulation", Unit.TEST, 15, 55, ("kwire/tests/simulation/",)),
    Group(
        "clusters",
        Unit.MODULE,
        80,
        60,
        (
            "kwire/tests/cluster/",
            "kwire/tests/replication/",
            "kwire/tests/test_testing_cluster",
            "kwire/tests/cli/test_cli_cluster_of_nodes",
            "kwire/tests/cli/test_serve_nodes",
        ),
    ),
    Group("power cuts", Unit.TEST, 45, 0, ("kwire/tests/power_cuts/", "storage/tests/power_cuts/")),
    Group(
        "fuzz",
        Unit.TEST,
        25,
        0,
        ("kwire/tests/network/test_fuzz", "kwire/tests/network/test_hostile_", "kwire/tests/network/test_sasl_fuzz"),
    ),
    Group("fast paths", Unit.TEST, 15, 140, ("kwire/tests/handlers/test_fast_paths",)),
    Group("server", Unit.MODULE, 200, 20, ("kwire/",)),
    Group("log", Unit.MODULE, 40, 0, ("storage/",)),
    Group("protocol", Unit.MODULE, 45, 15, ("protocol/",)),
    Group("benchmarks", Unit.GROUP, 4, 10, ("benchmarks/",)),
    Group("tools", Unit.MODULE, 12, 15, ("devtools/",)),
)


def group_of(nodeid: str) -> Group:
    """Returns the group of a test by pytest's name of it (`nodeid`). Raises LookupError."""
    return _group_of_file(nodeid.partition("::")[0])


@cache
def _group_of_file(path: str) -> Group:
    found = [(len(known), group) for group in GROUPS for known in group.paths if path.startswith(known)]
    if not found:
        raise LookupError(f"{path} is in no group of tests: name its folder in devtools/suite/groups.py")
    return max(found, key=lambda it: it[0])[1]


def place_in_order(nodeid: str) -> int:
    return GROUPS.index(group_of(nodeid))


def unit_of(nodeid: str) -> str:
    """Returns the name of the unit that a test stays together with."""
    group = group_of(nodeid)
    match group.unit:
        case Unit.GROUP:
            return group.name
        case Unit.MODULE:
            return nodeid.partition("::")[0]
        case Unit.TEST:
            return nodeid
