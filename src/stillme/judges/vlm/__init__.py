"""Ask a vision-language model one typed question about images.

    model = Model(model_named("gemini-3-flash"))
    reply = model.ask(Question(system="…", parts=("Before:", source, "After:", edited), answer=Scores))

A reply is an answer that matches the schema, a refusal, a malformed answer with its raw text, or a failure. Missing
values are never filled in. Providers, model names and prices are data, in models.toml.
"""

from stillme.judges.vlm.model import Model
from stillme.judges.vlm.replies import Malformed, ModelAnswered, ModelDeclined, Question, Reply
from stillme.judges.vlm.settings import ModelSettings, Profile, TokenPrice, known_models, model_named

__all__ = [
    "Malformed",
    "Model",
    "ModelAnswered",
    "ModelDeclined",
    "ModelSettings",
    "Profile",
    "Question",
    "Reply",
    "TokenPrice",
    "known_models",
    "model_named",
]
