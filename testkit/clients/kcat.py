"""The path of kcat, if it is installed."""

from __future__ import annotations

import shutil

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
