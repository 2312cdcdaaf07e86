"""Tests of a model and a machine before they are used."""
