"""Keys and values: of the responses that decode, and of texts that were read before."""
