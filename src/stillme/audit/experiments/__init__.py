"""The paper's three experiments as commented audits: with honest defaults, or set back to the paper."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from importlib.resources import files
from typing import Literal, get_args

from stillme.audit.grid import genders_of
from stillme.audit.template import factor_lines, quoted
from stillme.core import prompts, registry
from stillme.core.errors import StillmeError
from stillme.core.types import Portrait

Experiment = Literal["diagnosis", "mitigation", "roles"]
Cases = Literal["stratified", "drifted"]
"""How mitigation cases are chosen: the paper tells it in two ways."""
EXPERIMENTS: tuple[str, ...] = get_args(Experiment)

PAPERS_JUDGE_ENDS = date(2026, 12, 11)
"""When OpenAI shuts GPT-5 mini down."""
PAPERS_SAMPLE = 500
CELLS = "cells.csv"
"""The file of what was drawn by outcome, beside audit.toml."""

_EDITORS = 3
_JUDGES = """\
# The paper's two judges. {told}
# {about}
# `stillme list judges` shows others; the offline instruments are free: use = "instruments".
[[judges]]
use = "gemini-3-flash"
[judges.parameters]
profile = "{profile}"{paper}

[[judges]]
use = "gpt-5-mini"
[judges.parameters]
profile = "{profile}"{paper}\
"""
_TOLD = "They are told race, gender and age of the portrait, as in the paper."
_BLIND = 'They do not see labels; disclosure = "paper" tells them race, gender and age.'
_AS_PAPER = """
disclosure = "paper"
# No pairs of known truth among the questions.
[judges.control_pairs]
share = 0.0"""
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
_MEAN = """\
# "mean" averages, as §4.1 of the paper says. "paper" is its Eq. 3, which rounds and lets the first judge win.
rule = "mean"\
"""
_EQ_3 = """\
# Eq. 3: the mean, rounded half up; where the two are more than a point apart, the first one's score.
rule = "paper"
judges = ["gemini-3-flash", "gpt-5-mini"]\
"""
_ONE_AT_A_TIME = """
# One prompt at a time, as the paper's editors were asked.
parameters = { batch = 1 }"""
_STRATIFIED = """\
# The paper tells two stories. This is the one of §4.3, Appendix H and Table 18: a stratified draw before any result is
# seen. Cases selected because they failed improve on their own (regression to the mean).
size = {size}
seed = 0\
"""
_DRIFTED = f"""\
# The paper tells two stories. This is the one of Appendix D.2 and Table 26: cases of the first experiment whose race or
# gender was seen to change. Such cases improve on their own (regression to the mean), so an improvement says little.
# `size = 500` instead is the stratified draw of §4.3 and Appendix H.
cells = "{CELLS}"
by = "drift"\
"""
_REUSE = """
[reuse]
# Edits, judgements and descriptions that this run has and this audit asks for are taken from it, not made again.
runs = ["{run}"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What an experiment is made with."""

    as_paper: bool = False
    """Set every departure back that can be set back."""
    source: str = "synthetic"
    portraits: tuple[Portrait, ...] = field(default_factory=lambda: registry.portrait_set("synthetic"))
    """Those of the source."""
    run: str = ""
    """The first experiment's run, as seen from the new folder."""
    cases: Cases = "stratified"


def experiment(name: Experiment, title: str, setup: Setup | None = None, *, today: date | None = None) -> str:
    """The audit.toml of an experiment, with models that can still be asked."""
    setup = setup or Setup()
    past = (today or date.today()) >= PAPERS_JUDGE_ENDS
    about = (_SINCE if past else _THEN).format(end=PAPERS_JUDGE_ENDS)
    profile, paper = "current" if past else "paper", setup.as_paper
    cells = len(setup.portraits) * len(prompts.diagnostic()) * _EDITORS
    judges = _JUDGES.format(
        told=_TOLD if paper else _BLIND, about=about, profile=profile, paper=_AS_PAPER if paper else ""
    )
    text = files("stillme.audit.experiments").joinpath(f"{name}.toml").read_text("utf-8")
    for place, words in {
        "{source}": quoted(setup.source),
        "{factors}": factor_lines(setup.portraits),
        "{judges}": judges,
        "{ensemble}": _EQ_3 if paper else _MEAN,
        "{extractors}": _EXTRACTORS[profile],
        "{batch}": _ONE_AT_A_TIME if paper else "",
        "{sample}": _DRIFTED if setup.cases == "drifted" else _STRATIFIED.format(size=min(PAPERS_SAMPLE, cells)),
        "{reuse}": _REUSE.format(run=quoted(setup.run)) if setup.run else "",
        "{genders}": _genders(setup) if name == "roles" else "",
        "{title}": quoted(title),
    }.items():
        text = text.replace(place, words)
    return text


def _genders(setup: Setup) -> str:
    genders = genders_of(setup.portraits)
    if genders is None:
        raise StillmeError(
            f"No attribute of the portraits in {setup.source} has words for men and women, such as male and female, "
            "and role prompts need both. Add one to its portraits.csv."
        )
    return "\n".join(
        f'{key} = "{quoted(value)}"'
        for key, value in (("gender", genders.gender), ("male", genders.male), ("female", genders.female))
    )
