"""Who may teach what, what never trains, and what waits for a person."""
