"""Conversations that other programs recorded."""
