"""Candidates from a dataset of the Hugging Face hub, by the `datasets` library where it is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

from stillme.curation.faults import Faults
from stillme.curation.sources import Problems, Row, plain_row, translate
from stillme.curation.taxonomy import Taxonomy, taxonomy
from stillme.errors import MissingExtra, StillmeError, UnreadableImage

_PICTURE = "image"


class HubSource:
    """A dataset with a column `image` and labels, such as `hf:HuggingFaceM4/FairFace`.

    Labels are read without opening a picture; a picture's file is taken as it was uploaded.
    """

    def __init__(self, repository: str, *, configuration: str, splits: tuple[str, ...]) -> None:
        self._repository = repository
        self._configuration = configuration
        self._splits = splits

    @property
    def title(self) -> str:
        """What it is, for the record of the draw."""
        return f"{self._repository}, configuration {self._configuration}, {' and '.join(self._splits)}"

    @property
    def levels(self) -> Mapping[str, tuple[str, ...]]:
        """FairFace's design where the dataset carries FairFace's labels."""
        return self._taxonomy.levels if self._taxonomy else {}

    def rows(self, faults: Faults) -> Iterator[Row]:
        """All rows of all splits, pictures unopened."""
        for split, dataset in self._datasets.items():
            problems = Problems(f"{self._repository}, split {split}")
            names = [name for name in dataset.column_names if name != _PICTURE]
            rows: list[Row] = []
            for index, values in enumerate(dataset.select_columns(names)):
                file = f"{split}/{index}"
                cells = {name: _text(dataset.features[name], values[name]) for name in names}
                if self._taxonomy is None:
                    rows.append(plain_row(file, cells))
                elif row := translate(file, f"row {index}", cells, self._taxonomy, problems):
                    rows.append(row)
            problems.raise_if_any()
            yield from rows

    def read(self, row: Row) -> bytes:
        """One picture's file."""
        split, _, index = row.file.rpartition("/")
        image = self._datasets[split][int(index)][_PICTURE]
        if image and image.get("bytes"):
            return bytes(image["bytes"])
        raise UnreadableImage(f"{row.file} of {self._repository} has no picture.")

    @cached_property
    def _datasets(self) -> dict[str, Any]:
        try:
            # An optional library without type information.
            library: Any = import_module("datasets")
        except ImportError:
            raise MissingExtra(
                f'hf:{self._repository} needs the `datasets` library: `pip install "stillme[hub]"`, '
                "or name a folder with a copy of the data."
            ) from None
        datasets: dict[str, Any] = {}
        for split in self._splits:
            try:
                dataset = library.load_dataset(self._repository, self._configuration, split=split)
            # The library raises its own, the hub client's and the network's errors alike.
            except Exception as error:
                first = (str(error).splitlines() or [type(error).__name__])[0]
                raise StillmeError(
                    f"hf:{self._repository} (configuration {self._configuration!r}, split {split!r}) cannot be "
                    f"loaded: {first}. Check the name, or name a folder with a copy of the data."
                ) from error
            if _PICTURE not in dataset.column_names:
                raise StillmeError(
                    f"hf:{self._repository} has no column {_PICTURE!r}; its columns are {dataset.column_names}. "
                    "Name another dataset."
                )
            datasets[split] = dataset.cast_column(_PICTURE, library.Image(decode=False))
        return datasets

    @cached_property
    def _taxonomy(self) -> Taxonomy | None:
        """FairFace's, where every label that the dataset declares is one of FairFace's."""
        fairface = taxonomy("fairface")
        features = next(iter(self._datasets.values())).features
        declared = {name: getattr(features.get(name), "names", None) for name in fairface.labels}
        matches = all(names and set(names) <= set(fairface.labels[name]) for name, names in declared.items())
        return fairface if matches else None


def _text(feature: Any, value: Any) -> str:
    if value is None:
        return ""
    return str(feature.int2str(value)) if hasattr(feature, "int2str") else str(value)
