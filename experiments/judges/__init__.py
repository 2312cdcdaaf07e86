"""The cost of a judge that is often wrong, the guards against it, and learning from different people."""
