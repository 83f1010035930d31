"""Writes the generated modules, or with --check checks that those in the tree are up to date."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from codegen import emit_module, schema

PACKAGE = Path(__file__).parent.parent / "kwire_protocol"
RUFF_CONFIG = Path(__file__).parent.parent.parent / "pyproject.toml"


def sources() -> dict[Path, str]:
    """Returns the text of each file, not formatted yet, by its path below kwire_protocol."""
    version = schema.kafka_version()
    messages = schema.load_messages()
    internal = schema.load_internal()
    files = {
        Path("errors.py"): emit_module.errors_module(schema.load_errors(), version),
        Path("messages/__init__.py"): emit_module.api_table(messages, version),
        Path("internal/__init__.py"): emit_module.internal_table(internal, version),
    }
    files |= {Path(f"messages/{name}.py"): text for name, text in emit_module.api_modules(messages).items()}
    files |= {Path(f"internal/{name}.py"): text for name, text in emit_module.internal_modules(internal).items()}
    return files


def formatted() -> dict[Path, str]:
    """All files as they must stand in the tree."""
    files = sources()
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        ruff: list[str | Path] = [
            sys.executable,
            "-m",
            "ruff",
            "format",
            "--quiet",
            "--no-cache",
            "--config",
            RUFF_CONFIG,
            folder,
        ]
        subprocess.run(ruff, check=True)
        return {path: (Path(folder) / path).read_text() for path in files}


def differences(files: dict[Path, str], package: Path) -> list[str]:
    problems = []
    for path, text in files.items():
        target = package / path
        if not target.exists():
            problems.append(f"{path} is missing")
        elif target.read_text() != text:
            problems.append(f"{path} is stale")
    for folder in ("messages", "internal"):
        strays = {path.relative_to(package) for path in (package / folder).glob("*.py")} - set(files)
        problems += [f"{path} has no schema" for path in sorted(strays)]
    return problems


def main(arguments: list[str] | None = None, package: Path = PACKAGE) -> int:
    parser = argparse.ArgumentParser(prog="python -m codegen", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when something is not fresh")
    options = parser.parse_args(arguments)
    files = formatted()
    problems = differences(files, package)
    if options.check:
        for problem in problems:
            print(problem)
        return 1 if problems else 0
    for path, text in files.items():
        target = package / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_text() != text:
            target.write_text(text)
    for folder in ("messages", "internal"):
        for path in (package / folder).glob("*.py"):
            if path.relative_to(package) not in files:
                path.unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
