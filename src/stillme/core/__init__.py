"""What every room builds on: records, errors, files, pictures, HTTP, and the rubric, prompts and paper as data."""
