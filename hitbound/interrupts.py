"""An interrupt ends the process with 130, even where a library swallows it or disguises it as another error."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

_seen = threading.Event()


def watch() -> None:
    """From now on interrupts are remembered, and sent again where Python had to ignore one.

    Hypothesis runs code in garbage collections, where an interrupt is printed and ignored; ctypes turns one that falls
    into a call of z3 into an error about the argument.
    """
    signal.signal(signal.SIGINT, _remember)
    sys.unraisablehook = _send_again


def seen() -> bool:
    """Whether there was an interrupt."""
    return _seen.is_set()


@contextlib.contextmanager
def after_writing() -> Iterator[None]:
    """What is written within this context is written whole: an interrupt waits for its end.

    It is held back by the system, not by a handler: one that returns cuts an unbuffered write short.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _remember(signal_number: int, frame: FrameType | None) -> None:
    _seen.set()
    raise KeyboardInterrupt


def _send_again(unraisable: sys.UnraisableHookArgs) -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        threading.Timer(0.05, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(unraisable)
