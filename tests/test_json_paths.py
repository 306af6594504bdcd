from __future__ import annotations

import pytest

from stillme.json_paths import dig


def test_a_path_leads_through_objects_and_lists():
    assert dig({"a": [{"b": 1}]}, "a", 0, "b") == 1


@pytest.mark.parametrize("odd", [None, 3, "text", [], {"a": None}, {"a": "b"}])
def test_another_shape_on_the_way_gives_none_rather_than_an_error(odd: object):
    assert dig(odd, "a", 0, "b") is None
