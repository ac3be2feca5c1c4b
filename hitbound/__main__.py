"""Entry point of the console script and of `python -m hitbound`."""

from __future__ import annotations

import sys

from hitbound.shadowing import shadowed_package


def main() -> None:
    """Run the command line and exit; refuses to start when our import packages are shadowed."""
    refusal = shadowed_package()
    if refusal:
        print(f"hitbound: {refusal}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    try:
        # Only now: everything below imports `model` and its neighbours.
        from hitbound import interrupts
        from hitbound.process import run
    except KeyboardInterrupt:
        sys.exit(130)
    interrupts.watch()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
