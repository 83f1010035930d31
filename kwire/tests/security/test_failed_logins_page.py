"""The reasons of failed logins in docs/security.md are those that the log has."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]


def test_every_reason_on_the_page_is_in_the_code() -> None:
    page = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
    section = page.split("## When a login fails")[1].split("## ")[0]
    reasons = [
        reason for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for reason in row.strip("`").split("`, `")
    ]
    assert len(reasons) >= 8
    sources = [
        *(REPOSITORY / "kwire" / "security" / "sasl").glob("*.py"),
        REPOSITORY / "kwire" / "network" / "connection.py",
    ]
    text = "".join(source.read_text(encoding="utf-8") for source in sources)
    text = re.sub(r"{what}", "user", text)
    assert [reason for reason in reasons if reason not in text] == []
