"""Ask a vision-language model one typed question about pictures, and get an honest reply.

    model = Model(model_named("gemini-3-flash"))
    reply = model.ask(Question(system="…", parts=("Before:", source, "After:", edited), answer=Scores))

A reply is an answer that keeps the schema, a refusal, a malformed answer with its raw text, or a failure. Nothing is
ever filled in. Which providers exist, what they are called and what they cost is data, in models.toml.
"""

from stillme.vlm.model import Model
from stillme.vlm.replies import Answered, Declined, Malformed, Question, Reply
from stillme.vlm.settings import ModelSettings, Price, Profile, known_models, model_named

__all__ = [
    "Answered",
    "Declined",
    "Malformed",
    "Model",
    "ModelSettings",
    "Price",
    "Profile",
    "Question",
    "Reply",
    "known_models",
    "model_named",
]
