"""The human study: people rate edits blind, every click is kept, and the ratings join the audit.

`drawing` picks the items of a run, `config` reads study.toml, `assignment` gives each participant one task so that
every item gets exactly k ratings, `app` serves it, `closing` puts the ratings into the run's ledger as the judge
`people`. Nothing here is imported before a `stillme study` command needs it.
"""
