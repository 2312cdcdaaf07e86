"""What samples tokens. One port, the table of engines, and a folder for each."""
