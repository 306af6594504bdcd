"""A run as one sealed file, and the check that its numbers follow from its rows.

`seal` writes a copy of the database, tables, report and pictures into an archive with a hash of everything; `verify`
needs nothing but the archive: no editor, no judge, no API key, no network.
"""

from stillme.findings.evidence.bundle import Difference, opened_bundle, unpacked_run
from stillme.findings.evidence.sealing import BundleVerdict, Sealed, Verification, seal, verify

__all__ = ["BundleVerdict", "Difference", "Sealed", "Verification", "opened_bundle", "seal", "unpacked_run", "verify"]
