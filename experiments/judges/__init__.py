"""What a judge that is often wrong costs, what guards against it, and what is learned from whom."""
