"""The paper's published numbers and how they were measured, kept as data: facts with their places, in our words."""

from stillme.core.paper.published import Published, published
from stillme.core.paper.setting import PaperEditor, PaperJudge, Setting, setting

__all__ = ["PaperEditor", "PaperJudge", "Published", "Setting", "published", "setting"]
