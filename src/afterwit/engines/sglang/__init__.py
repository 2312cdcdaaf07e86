"""An SGLang server."""
