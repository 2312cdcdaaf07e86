"""Version 8: the few verdicts that have flags are found without reading the others."""

STATEMENTS = ("CREATE INDEX flagged_verdicts ON verdicts (seq) WHERE flags IS NOT NULL",)
