"""`python -m tests.golden` takes the photograph again."""

from __future__ import annotations

import json
import os
import tempfile

from tests.golden.files import as_text, differences, take

# What this user keeps between runs does not change the photograph.
os.environ["STILLME_HOME"] = tempfile.mkdtemp(prefix="stillme-golden-")

for file, document in take().items():
    before = json.loads(file.read_text("utf-8")) if file.exists() else {}
    changed = list(differences(before, json.loads(json.dumps(document))))
    file.write_text(as_text(document) + "\n", "utf-8")
    print(f"{file.name}: {len(changed):,} changed")
    print("\n".join(f"  {line}" for line in changed[:20]))
