"""Layer 2: what samples tokens. One port, the table of engines, and a folder for each."""
