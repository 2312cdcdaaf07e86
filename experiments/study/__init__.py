"""What moves learning in the demo's worlds: one setting changed at a time, several seeds, paired by seed."""
