"""`python -m testkit.worlds.power_cuts NAME...` checks states again, by the names that a failed test gave them.

It shows the changes before the power cut, the content that it left in each file, and the result of the check.
"""

from __future__ import annotations

import sys
import traceback

from kwire_storage.disk.medium import ROOT, Medium

from testkit.worlds.power_cuts.storage_traces import storage_trace
from testkit.worlds.power_cuts.sweep import Trace, find


def show(trace: Trace, state_name: str) -> bool:
    """Returns True if the state holds."""
    trace, state, journal = find(trace, state_name)
    print(*(f"{number:4} {entry.what}" for number, entry in enumerate(journal, 1)), sep="\n")
    print(state_name, *state.description, sep="\n  ")
    print("what is left:", *_listing(state.medium, ROOT, "  "), sep="\n")
    try:
        trace.check(state.disk(), state.moment)
    except Exception:
        traceback.print_exc()
        return False
    print("it holds")
    return True


def _listing(medium: Medium, folder: int, indent: str) -> list[str]:
    lines = []
    for name, node in sorted(medium.folders[folder].live.items()):
        if node in medium.folders:
            lines += [f"{indent}{name}/", *_listing(medium, node, indent + "  ")]
        else:
            data = bytes(medium.files[node].live)
            shown = data.decode(errors="replace") if data.isascii() else data.hex(" ", -4)
            lines.append(f"{indent}{name}: file {node}, {len(data)} bytes: {shown[:100]!r}")
    return lines


def main(names: list[str]) -> int:
    held = [show(storage_trace(name.partition("@")[0]), name) for name in names]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
