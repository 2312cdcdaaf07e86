"""Commands that keep house: keys, copies, what goes in and out."""
