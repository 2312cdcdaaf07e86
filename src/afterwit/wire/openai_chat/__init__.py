"""OpenAI's chat completions: requests, responses, events and errors."""
