"""What packages on top of Afterwit may import: a module for each thing that they build."""
