"""`python -m stillme` is `stillme`."""

from stillme.cli import main

main()
