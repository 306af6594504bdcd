"""Prolific as people use it: create the study there, follow submissions, approve, reject, ask for returns, webhooks."""
