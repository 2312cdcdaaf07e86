"""One request's way to recorded turns: prepared, bound, sampled, streamed, stored."""
