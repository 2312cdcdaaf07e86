"""`python -m afterwit` is the `afterwit` command."""

from afterwit.apps.cli import main

if __name__ == "__main__":
    main()
