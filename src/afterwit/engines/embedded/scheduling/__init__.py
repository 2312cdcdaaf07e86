"""What runs next: requests that wait, prompts in pieces, responses step by step, in one thread."""
