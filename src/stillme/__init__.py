"""Does an image editor keep people themselves?"""

__version__ = "0.1.0"
