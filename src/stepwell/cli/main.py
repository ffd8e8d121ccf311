"""The one place where a command begins, and where an error becomes one line and an exit status."""

import sys

from stepwell.cli.arguments import make_parser
from stepwell.errors import StepwellError
from stepwell.telemetry import setup_logging

_INTERRUPTED = 130  # what shells expect of a program that Ctrl-C ended


def main(arguments: list[str] | None = None) -> int:
    """Run one command: 0 done, 1 it failed or found damage, 2 wrong usage, 130 interrupted."""
    parsed = make_parser().parse_args(arguments)
    setup_logging()
    try:
        return int(parsed.run_command(parsed))
    except StepwellError as error:
        return _failed("; ".join([str(error), *getattr(error, "__notes__", [])]))
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except OSError as error:
        return _failed(str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED


def _failed(why: str) -> int:
    print("error: " + " ".join(why.split("\n")), file=sys.stderr)
    return 1
