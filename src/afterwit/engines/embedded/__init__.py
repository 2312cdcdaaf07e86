"""The embedded engine: a Hugging Face model in this process, batched, in a thread of its own."""
