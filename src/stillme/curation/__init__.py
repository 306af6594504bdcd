"""From candidates to portraits: instruments look, people choose, a versioned data set with its card comes out."""
