"""The command line `gif`."""

from flows.cli.app import main

__all__ = ["main"]
