"""The study's tables. Constraints hold what the code must never break."""

from __future__ import annotations

import sqlalchemy as sa

from stillme.web.database import event_table, keep_append_only

metadata = sa.MetaData()

_not_void = sa.text("state <> 'void'")

study = sa.Table(
    "study",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    # Of the newest version.
    sa.Column("config_json", sa.Text, nullable=False),
    sa.Column("config_hash", sa.Text, nullable=False),
    sa.Column("k", sa.Integer, nullable=False),
    sa.Column("lease_s", sa.Double, nullable=False),
    sa.Column("state", sa.Text, sa.CheckConstraint("state IN ('open', 'closed')"), nullable=False),
    sa.Column("withdrawn", sa.Integer, nullable=False, default=0),
    # 1 while something deleted may still be read in the database's files.
    sa.Column("unshredded", sa.Integer),
)
version = sa.Table(
    "version",
    metadata,
    sa.Column("study", sa.Text, sa.ForeignKey("study.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("config_hash", sa.Text, nullable=False),
    sa.Column("config_json", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
item = sa.Table(
    "item",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("study", sa.Text, sa.ForeignKey("study.id"), nullable=False),
    sa.Column("drawn", sa.Text, nullable=False),
    sa.Column(
        "kind", sa.Text, sa.CheckConstraint("kind IN ('real','repeat','gold','attention','training')"), nullable=False
    ),
    sa.Column("prompt", sa.Text, nullable=False),
    sa.Column("questions", sa.Text, nullable=False),
    sa.Column("sides", sa.Integer, nullable=False),
    sa.Column("offset", sa.Integer, nullable=False),
    sa.Column("repeats", sa.Text),
)
image = sa.Table(
    "image",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("item", sa.Text, sa.ForeignKey("item.id"), nullable=False, index=True),
    # 0 the source, -1 a second person's portrait, 1 and 2 the outputs. Which editor and arm made them is not in this
    # database.
    sa.Column("role", sa.Integer, nullable=False),
    sa.Column("file", sa.Text, nullable=False),
    sa.Column("expected_json", sa.Text),
    sa.UniqueConstraint("item", "role"),
)
batch = sa.Table(
    "batch",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("study", sa.Text, sa.ForeignKey("study.id"), nullable=False),
)
batch_item = sa.Table(
    "batch_item",
    metadata,
    sa.Column("batch", sa.Text, sa.ForeignKey("batch.id"), primary_key=True),
    sa.Column("item", sa.Text, sa.ForeignKey("item.id"), primary_key=True),
)
participant = sa.Table(
    "participant",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("study", sa.Text, sa.ForeignKey("study.id"), nullable=False),
    sa.Column("ext_hmac", sa.Text, nullable=False),
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("excluded", sa.Text),
    sa.Column("entered", sa.Double, nullable=False),
    # The version agreed to; empty before.
    sa.Column("version", sa.Integer),
    # When the answers were written into the run; from then on they cannot be withdrawn.
    sa.Column("written", sa.Double),
    sa.UniqueConstraint("study", "ext_hmac"),
)
identity = sa.Table(
    "identity",
    metadata,
    sa.Column("participant", sa.Text, sa.ForeignKey("participant.id"), primary_key=True),
    sa.Column("pid", sa.LargeBinary, nullable=False),
    sa.Column("submission", sa.LargeBinary, nullable=False),
    sa.Column("since", sa.Double, nullable=False),
)
arrival = sa.Table(
    "arrival",
    metadata,
    # Hashes of the links that a participant came by, the second factor beside the id; kept after payment.
    sa.Column("participant", sa.Text, sa.ForeignKey("participant.id"), primary_key=True),
    sa.Column("link_hmac", sa.Text, primary_key=True),
)
session = sa.Table(
    "session",
    metadata,
    sa.Column("token_hash", sa.Text, primary_key=True),
    sa.Column("participant", sa.Text, sa.ForeignKey("participant.id"), nullable=False, index=True),
    sa.Column("expires", sa.Double, nullable=False),
)
admin_session = sa.Table(
    "admin_session",
    metadata,
    sa.Column("token_hash", sa.Text, primary_key=True),
    sa.Column("study", sa.Text, sa.ForeignKey("study.id"), nullable=False),
    sa.Column("expires", sa.Double, nullable=False),
)
invitation = sa.Table(
    "invitation",
    metadata,
    sa.Column("code_hash", sa.Text, primary_key=True),
    sa.Column("study", sa.Text, sa.ForeignKey("study.id"), nullable=False),
)
consent = sa.Table(
    "consent",
    metadata,
    sa.Column("participant", sa.Text, sa.ForeignKey("participant.id"), primary_key=True),
    sa.Column("text_hash", sa.Text, nullable=False),
    sa.Column("decision", sa.Text, sa.CheckConstraint("decision IN ('agreed', 'declined')"), nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
device = sa.Table(
    "device",
    metadata,
    sa.Column("participant", sa.Text, sa.ForeignKey("participant.id"), primary_key=True),
    sa.Column("width", sa.Integer, nullable=False),
    sa.Column("height", sa.Integer, nullable=False),
    # Screen pixels for one of the page.
    sa.Column("ratio", sa.Double, nullable=False),
    # What the participant said.
    sa.Column("full_brightness", sa.Integer, nullable=False),
    sa.Column("no_colour_filter", sa.Integer, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
slot = sa.Table(
    "slot",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("batch", sa.Text, sa.ForeignKey("batch.id"), nullable=False),
    sa.Column("n", sa.Integer, sa.CheckConstraint("n >= 0"), nullable=False),
    sa.Column("state", sa.Text, sa.CheckConstraint("state IN ('open','held','done','void')"), nullable=False),
    sa.Column("participant", sa.Text, sa.ForeignKey("participant.id")),
    sa.Column("lease_until", sa.Double, nullable=False, default=0.0),
    sa.Column("epoch", sa.Integer, nullable=False, default=0),
    sa.Column("begun", sa.Double),
    sa.Column("ended", sa.Double),
    sa.Column("reason", sa.Text),
    sa.Column("version", sa.Integer),
    sa.CheckConstraint("(state = 'open') = (participant IS NULL) OR state = 'void'"),
    sa.Index("slot_once", "batch", "n", unique=True, sqlite_where=_not_void),
    sa.Index("slot_one_each", "participant", unique=True, sqlite_where=_not_void),
)
presentation = sa.Table(
    "presentation",
    metadata,
    sa.Column("slot", sa.Text, sa.ForeignKey("slot.id"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("item", sa.Text, sa.ForeignKey("item.id"), nullable=False),
    sa.Column("swapped", sa.Integer, nullable=False),
    sa.UniqueConstraint("slot", "item"),
)
answer = sa.Table(
    "answer",
    metadata,
    sa.Column("slot", sa.Text, sa.ForeignKey("slot.id"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("side", sa.Integer, primary_key=True),
    sa.Column("question", sa.Integer, primary_key=True),
    sa.Column("value", sa.Integer, sa.CheckConstraint("value BETWEEN 0 AND 5")),
    # What was answered before it was corrected in the review; empty if it was not.
    sa.Column("first", sa.Integer),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    # What was on the screen: how many pictures had been decoded, and their smallest side in the file and on the screen.
    sa.Column("pictures", sa.Integer),
    sa.Column("decoded", sa.Integer),
    sa.Column("shown", sa.Integer),
    sa.ForeignKeyConstraint(["slot", "position"], ["presentation.slot", "presentation.position"]),
)
comment = sa.Table(
    "comment",
    metadata,
    sa.Column("slot", sa.Text, sa.ForeignKey("slot.id"), primary_key=True),
    # -1 for what was said at the end.
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
event = sa.Table(
    "event",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("slot", sa.Text, sa.ForeignKey("slot.id"), nullable=False, index=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("amount", sa.Double, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
audit = event_table(metadata, "audit")


def create(connection: sa.Connection) -> None:
    """Create what is missing."""
    metadata.create_all(connection)
    keep_append_only(connection, audit)
