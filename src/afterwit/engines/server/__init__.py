"""Engines over vLLM and SGLang servers."""
