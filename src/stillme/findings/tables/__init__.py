"""A run's numbers as files: the estimates, the paper's tables by number, and every further analysis."""
