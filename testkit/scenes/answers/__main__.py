"""Prints how many answers the walk writes: `python -m testkit.scenes.answers`."""

from __future__ import annotations

import sys
from collections import Counter

from kwire.handlers.apis import APIS
from testkit.scenes.answers.walk import Walk


def main() -> None:
    total: Counter[str] = Counter()
    for api in APIS.values():
        total += Walk(api).go().answers
    versions = sum(len(it.versions) for it in APIS.values())
    counts = ", ".join(f"{count:,} {kind}" for kind, count in total.items())
    sys.stdout.write(f"{len(APIS)} APIs, {versions} versions, {total.total():,} answers: {counts}\n")


if __name__ == "__main__":
    main()
