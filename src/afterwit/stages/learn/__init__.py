"""The learn stage: claims a batch, trains a version, commits it."""
