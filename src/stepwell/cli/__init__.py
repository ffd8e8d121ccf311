"""The command `stepwell`. It selects what to do; configurations describe how."""

from stepwell.cli.main import main

__all__ = ["main"]
