"""The entry point of the command line: `privet` and `python -m privet`."""

from __future__ import annotations

import sys

from privet.errors import EXIT_CODE_INTERRUPTED


def main() -> None:
    """Run the command line; exit quietly on an interrupt, even while modules are imported."""
    try:
        from privet.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(EXIT_CODE_INTERRUPTED)


if __name__ == "__main__":
    main()
