"""Commands that only read: what was recorded, what was learned, and what happens next."""
