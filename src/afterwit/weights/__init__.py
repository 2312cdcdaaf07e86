"""Loads models and adapters, and computes with shared weights."""
