"""Entry point of the console script and of `python -m hitbound`."""

from __future__ import annotations

import sys

from hitbound.shadowing import shadowed_package


def main() -> None:
    """Run the command line and exit; refuses to start when our import packages are shadowed."""
    refusal = shadowed_package()
    if refusal:
        sys.exit(_refuse(refusal))
    # Only now: everything below imports `model` and its neighbours.
    from hitbound.process import deliver_interrupts_again, run

    deliver_interrupts_again()
    sys.exit(run(sys.argv[1:]))


def _refuse(refusal: str) -> int:
    print(f"hitbound: {refusal}", file=sys.stderr)  # noqa: T201
    return 2


if __name__ == "__main__":
    main()
