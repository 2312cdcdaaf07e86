"""The `afterwit` command, also `python -m afterwit`."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command. A Ctrl-C before it is made ends the process, without a traceback."""
    python = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from afterwit.cli.app import command
    from afterwit.cli.app import main as run

    command()
    signal.signal(signal.SIGINT, python)
    run()


if __name__ == "__main__":
    main()
