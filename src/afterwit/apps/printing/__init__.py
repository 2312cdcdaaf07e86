"""What commands print: tables, one turn, the ledger, curves, and why something is so, in words."""
