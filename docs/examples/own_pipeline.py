"""A diffusers pipeline of your own as an editor. In audit.toml: use = "python:./own_pipeline.py:edit".

PIPELINE names the weights: a folder, or a repository on the Hugging Face Hub.
"""

import os
from functools import cache

import torch
from diffusers import StableDiffusionInstructPix2PixPipeline


@cache
def pipeline():
    """Loaded with the first edit, once for the whole run."""
    loaded = StableDiffusionInstructPix2PixPipeline.from_pretrained(os.environ["PIPELINE"])
    return loaded.to("cuda" if torch.cuda.is_available() else "cpu")


def edit(image, instruction, seed):
    """One edit. The same seed gives the same picture, whatever else the run does."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return pipeline()(instruction, image=image, num_inference_steps=2, generator=generator).images[0]
