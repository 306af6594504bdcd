"""A run as one sealed file, and the check that its numbers follow from its rows.

`seal` writes rows, configuration, tables and report into an archive with a hash of everything; `verify` needs nothing
but the archive: no editor, no judge, no API key, no network.
"""

from stillme.evidence.coverage import NOT_COVERED, NotCovered
from stillme.evidence.differences import Difference
from stillme.evidence.dossier import write_dossier
from stillme.evidence.opening import opened_bundle, unpacked_run
from stillme.evidence.sealing import Sealed, seal
from stillme.evidence.verifying import Verdict, Verification, verify

__all__ = [
    "NOT_COVERED",
    "Difference",
    "NotCovered",
    "Sealed",
    "Verdict",
    "Verification",
    "opened_bundle",
    "seal",
    "unpacked_run",
    "verify",
    "write_dossier",
]
