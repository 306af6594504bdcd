"""Conformance checks for editors and judges: run them on your own before an audit.

    from stillme.plugins.testing import check_editor, check_judge

    def test_my_editor_conforms():
        check_editor(MyEditor, portraits, {"strength": 0.5})

    def test_my_judge_conforms():
        check_judge(MyJudge, portraits)

Every violation is one sentence; both raise an `AssertionError` with all of them, `violations` and `judge_violations`
return them. About twenty calls are made, which a plugin that costs money charges for.
"""

from stillme.plugins.testing.conformance import PROMPTS
from stillme.plugins.testing.editors import CHECKS, check_editor, violations
from stillme.plugins.testing.judges import JUDGE_CHECKS, check_judge, judge_violations

__all__ = ["CHECKS", "JUDGE_CHECKS", "PROMPTS", "check_editor", "check_judge", "judge_violations", "violations"]
