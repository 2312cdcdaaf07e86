"""Models and adapters in GGUF, the file format of llama.cpp, Ollama and LM Studio: read, and written."""
