"""Environment, tasks, hindsight over rollouts, and the consumer of groups."""
