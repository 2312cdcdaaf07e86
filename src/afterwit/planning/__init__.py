"""Plans of parts on GPUs, and the lines that start them."""
