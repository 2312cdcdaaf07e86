"""The store in SQL, whichever the database."""
