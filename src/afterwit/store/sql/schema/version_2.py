"""Version 2: whether a session has ended is asked once for each waiting turn."""

STATEMENTS = ("CREATE INDEX turns_by_session ON turns (session, kind)",)
