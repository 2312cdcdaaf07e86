"""From a turn and its next state to a verdict: questions, votes, hints."""
