"""What vLLM and SGLang servers have in common."""
