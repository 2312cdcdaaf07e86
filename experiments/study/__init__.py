"""The settings that move learning in the demo's worlds: one changed at a time, over seeds, paired by seed."""
