"""The process around the command line: every way to end has its exit code, and errors go to standard error."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence

import click

from hitbound.command import command
from hitbound.exit_codes import ExitCode
from model.errors import HitboundError

DEBUG_VARIABLE = "HITBOUND_DEBUG"


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    if hasattr(signal, "SIGPIPE"):  # `hitbound ... | head` ends quietly, never with the code of a verdict
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        return int(command.main(list(arguments), prog_name="hitbound", standalone_mode=False) or 0)
    except click.exceptions.Exit as exit_request:
        return exit_request.exit_code
    except click.ClickException as error:
        error.show(sys.stderr)
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted; this is no verdict")
        return ExitCode.INTERRUPTED
    except HitboundError as error:
        _say(str(error))
        return ExitCode.USAGE
    except (Exception, SystemExit) as error:  # a policy that calls sys.exit(0) must not end the gate with success
        _report_internal(error)
        return ExitCode.INTERNAL_ERROR


def deliver_interrupts_again() -> None:
    """Send an interrupt once more that Python had to swallow.

    Hypothesis runs code of its own in garbage collections; an interrupt that falls there is only printed and ignored.
    """

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            threading.Timer(0.05, _thread.interrupt_main).start()
        else:
            sys.__unraisablehook__(unraisable)

    sys.unraisablehook = hook


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
