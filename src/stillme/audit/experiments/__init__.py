"""The paper's three experiments as commented audits."""

from __future__ import annotations

from datetime import date
from importlib.resources import files
from typing import Literal, get_args

from stillme.audit.template import quoted

Experiment = Literal["diagnosis", "mitigation", "roles"]
EXPERIMENTS: tuple[str, ...] = get_args(Experiment)

PAPERS_JUDGE_ENDS = date(2026, 12, 11)
"""When OpenAI shuts GPT-5 mini down."""

_JUDGES = """\
# The paper's two judges. They do not see labels; disclosure = "paper" tells them race, gender and age, as the paper
# did. {about}
# `stillme list judges` shows others; the offline instruments are free: use = "instruments".
[[judges]]
use = "gemini-3-flash"
[judges.parameters]
profile = "{profile}"

[[judges]]
use = "gpt-5-mini"
[judges.parameters]
profile = "{profile}"\
"""
_EXTRACTORS = {
    "paper": '["gemini-3-flash", "gpt-5-mini"]',
    "current": """[
    { use = "gemini-3-flash", parameters = { profile = "current" } },
    { use = "gpt-5-mini", parameters = { profile = "current" } },
]""",
}
_THEN = """\
GPT-5 mini is shut down on {end}: then write profile = "current" for
# the vendors' successors.\
"""
_SINCE = """\
GPT-5 mini was shut down on {end}, so both are the vendors' successors;
# profile = "paper" names the paper's own.\
"""


def experiment(name: Experiment, title: str, *, today: date | None = None) -> str:
    """The audit.toml of an experiment in the paper's configuration, with models that can still be asked."""
    past = (today or date.today()) >= PAPERS_JUDGE_ENDS
    about = (_SINCE if past else _THEN).format(end=PAPERS_JUDGE_ENDS)
    profile = "current" if past else "paper"
    text = files("stillme.audit.experiments").joinpath(f"{name}.toml").read_text("utf-8")
    for place, words in (
        ("{judges}", _JUDGES.format(about=about, profile=profile)),
        ("{extractors}", _EXTRACTORS[profile]),
        ("{title}", quoted(title)),
    ):
        text = text.replace(place, words)
    return text
