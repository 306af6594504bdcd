"""A run as one sealed file, and the check that its numbers follow from its rows.

`seal` writes rows, configuration, tables and report into an archive with a hash of everything; `verify` needs nothing
but the archive: no editor, no judge, no key, no network.
"""

from stillme.evidence.opening import opened_bundle
from stillme.evidence.sealing import Sealed, seal
from stillme.evidence.verifying import Difference, Verification, verify

__all__ = ["Difference", "Sealed", "Verification", "opened_bundle", "seal", "verify"]
