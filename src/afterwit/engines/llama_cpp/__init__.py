"""The engine over llama.cpp's `llama-server`."""
