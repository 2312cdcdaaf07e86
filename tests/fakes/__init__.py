"""Doubles that tests inject: small models, scripted people, in-memory ports."""
