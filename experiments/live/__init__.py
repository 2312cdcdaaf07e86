"""The demo as a person plays it, over seeds; its results are kept as data for the documentation."""
