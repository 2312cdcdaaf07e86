"""Objectives or published recipes in one world, over seeds."""
