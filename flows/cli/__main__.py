"""`python -m flows.cli` is `gif`."""

from flows.cli import main

main()
