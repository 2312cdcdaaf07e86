"""`python -m afterwit` is the `afterwit` command."""

from afterwit.cli.app import main

if __name__ == "__main__":
    main()
