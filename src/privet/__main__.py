"""The start of every process of the command line: `privet`, or `python -m privet`."""

from __future__ import annotations

import sys

from privet.errors import EXIT_CODE_INTERRUPTED


def main() -> None:
    """Run the command line; an interrupt ends it quietly while it is still being imported, too."""
    try:
        from privet.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(EXIT_CODE_INTERRUPTED)


if __name__ == "__main__":
    main()
