"""Programs of the user's own: start them without a shell, end them in time, and name them by their files."""
