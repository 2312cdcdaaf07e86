"""From messages as clients send them to messages as a chat template takes them."""
