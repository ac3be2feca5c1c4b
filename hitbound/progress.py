"""Progress of long work, on standard error and only where a person is watching."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console

Say = Callable[[str], None]


@contextlib.contextmanager
def progress(quiet: bool = False) -> Iterator[Say]:
    """A function that shows what is being done now; it does nothing when standard error is not a terminal."""
    console = Console(stderr=True)
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda text: status.update(text)
