"""The process around the command line: every way to end has its exit code, and errors go to standard error."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence

import click

from hitbound import interrupts
from hitbound.command import command
from hitbound.exit_codes import ExitCode
from model.errors import HitboundError

DEBUG_VARIABLE = "HITBOUND_DEBUG"


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    if hasattr(signal, "SIGPIPE"):  # `hitbound ... | head` ends quietly, never with the code of a verdict
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        code = int(command.main(list(arguments), prog_name="hitbound", standalone_mode=False) or 0)
    except click.exceptions.Exit as exit_request:
        code = exit_request.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = ExitCode.INTERRUPTED
    except click.ClickException as error:
        error.show(sys.stderr)
        code = ExitCode.USAGE
    except HitboundError as error:
        _say(str(error))
        code = ExitCode.USAGE
    except (Exception, SystemExit) as error:  # a policy that calls sys.exit(0) must not end the gate with success
        if not interrupts.seen():
            _report_internal(error)
        code = ExitCode.INTERNAL_ERROR
    if code == ExitCode.INTERRUPTED or interrupts.seen():
        _say("interrupted; this is no verdict")
        code = ExitCode.INTERRUPTED
    return code


def _report_internal(error: BaseException) -> None:
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exc()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    _say(
        f"internal error: {type(error).__name__}: {error}{place}. This is a fault of hitbound and no verdict. "
        f"Set {DEBUG_VARIABLE}=1 to see the traceback, and please report it with the command and the files it used."
    )


def _say(message: str) -> None:
    click.echo(f"hitbound: {message}", err=True)
