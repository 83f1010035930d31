"""`python -m kwire` is the `kwire` command."""

from kwire.cli import main

main(prog_name="kwire")
