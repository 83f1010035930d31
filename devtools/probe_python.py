"""Reports to `make` whether kwire runs on this Python: prints a rank, the executable and the version.

Rank 0 was built with profile-guided optimization, rank 1 without it (pyenv's default). Without it a broker takes nearly
twice as long to start, and a tenth more CPU for a small request. Exits with 1 if kwire does not run on this Python. Old
Pythons run this file too, so it uses no newer syntax.
"""

import sys
import sysconfig


def _is_optimized():  # type: ignore[no-untyped-def]
    by_debian = "deb_system" in sysconfig.get_scheme_names()  # they are, without a flag in the configuration
    return by_debian or "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036
        sys.exit(1)
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        sys.exit(1)
    print(0 if _is_optimized() else 1, sys.executable, sys.version.split()[0])  # type: ignore[no-untyped-call]
