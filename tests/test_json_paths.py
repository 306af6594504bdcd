from __future__ import annotations

import pytest

from stillme.core.json_paths import dig, follow


def test_a_path_leads_through_objects_and_lists():
    assert dig({"a": [{"b": 1}]}, "a", 0, "b") == 1


@pytest.mark.parametrize("odd", [None, 3, "text", [], {"a": None}, {"a": "b"}])
def test_another_shape_on_the_way_gives_none_rather_than_an_error(odd: object):
    assert dig(odd, "a", 0, "b") is None


def test_a_written_path_follows_names_and_places():
    answer = {"data": [{"b64_json": "x", "0": "zero"}], "7": "seven"}
    assert follow(answer, "data.0.b64_json") == "x"
    assert follow(answer, "data.0.0") == "zero"
    assert follow(answer, "7") == "seven"
    assert follow(answer, "") == answer
    assert follow(answer, "data.1.b64_json") is None
    assert follow(answer, "data.b64_json") is None
