"""Hidden known answers: pairs of known truth among a judge's questions, and the alarm when it gets them wrong."""
