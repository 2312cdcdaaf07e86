"""Between messages and the model's own text: template, tokens, tool calls."""
