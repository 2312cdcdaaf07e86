"""SGLang servers."""
