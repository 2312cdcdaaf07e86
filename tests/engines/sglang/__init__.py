"""The SGLang engine: its wire against recorded answers, and the real server."""
