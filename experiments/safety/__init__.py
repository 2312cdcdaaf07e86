"""The benefit and the cost of promotion: the same runs with it and without it."""
