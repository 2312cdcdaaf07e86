"""Layer 2: what samples tokens. One port, and the engines that fill it."""
