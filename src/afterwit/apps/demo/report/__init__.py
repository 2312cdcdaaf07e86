"""What a run shows while it is played, and the files it leaves."""
