"""Runs seeds of the simulation: `python -m testkit.worlds.simulation 17 --seconds 2 --verbose`."""

from __future__ import annotations

import argparse
import logging
import sys

from testkit.worlds.simulation.groups import KINDS
from testkit.worlds.simulation.simulation import Report, simulate


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testkit.worlds.simulation", description=__doc__)
    parser.add_argument("seed", type=int, help="the seed, or the first of several")
    parser.add_argument("--count", type=int, default=1, help="how many seeds (default: 1)")
    parser.add_argument("--seconds", type=float, default=1.2, help="how long things go wrong, in virtual seconds")
    parser.add_argument("--group", choices=KINDS, help="the kind of the group (default: the seed decides)")
    parser.add_argument("--verbose", action="store_true", help="show the brokers' log lines and the last events")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL, format="%(levelname)s %(message)s")
    for seed in range(options.seed, options.seed + options.count):
        report = Report(seed)
        try:
            simulate(seed, faults_s=options.seconds, kind=options.group, report=report)
        except BaseException:
            sys.stdout.write("\n".join([*report.last, f"seed {seed} after these faults: {report.faults}", ""]))
            raise
        sys.stdout.write(
            f"seed {seed}: run {report.fingerprint:08x}, {report.events} events in {report.virtual_s:.1f} s, "
            f"{report.acknowledged} records acknowledged, {report.transactions} transactions; "
            f"group of kind {report.kind}, {report.commits} commits, {report.accepted} accepted; "
            f"{report.unclean_elections} unclean elections, {report.losses} losses; {report.faults}\n"
        )


if __name__ == "__main__":
    main()
