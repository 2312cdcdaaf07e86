"""What the worlds' people say: wordings and names, cut into parts that share none."""
