"""From a turn and its next state to a verdict, and whether the judge can be trusted."""
