"""A trial of a task: set-up, the agent's phase, the saved state, grading, resuming."""
