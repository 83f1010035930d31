"""Whether kwire runs on this Python, for `make`, which looks at all that it finds: a rank, the executable, the version.

Rank 0 was built with profile-guided optimization, 1 was not, as pyenv builds them unless it is told to: a broker starts
in nearly twice the time then, and takes a tenth more CPU for a small request. Ends with 1 where kwire cannot run. Old
Pythons are asked too, so nothing newer than them stands here.
"""

import sys
import sysconfig


def _is_optimized():  # type: ignore[no-untyped-def]
    by_debian = "deb_system" in sysconfig.get_scheme_names()  # they are, and do not say so
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
