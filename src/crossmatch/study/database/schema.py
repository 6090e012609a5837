"""The tables of a campaign.

`event` is the append-only log, chained by hashes. Answers are stored there only. The tables `slot`, `claim`, `barred` and `member`
follow from the events and make a claim fast; `study verify` replays the events and compares.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()
FREE, HAD = text("state IN ('open', 'held')"), text("person IS NOT NULL")  # conditions of partial indexes
OPEN, LENT, BEGUN = text("state = 'open'"), text("lease IS NOT NULL"), text("submitted IS NULL")
BUSY = text("state IN ('held', 'review')")  # few slots; every owner page counts them

# A study and its design; people join by `link`.
study = Table(
    "study", metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(80), nullable=False, unique=True),
    Column("design", JSON, nullable=False),
    Column("seed", String(64), nullable=False),  # of the displayed orders
    Column("link", String(64), nullable=False, unique=True),
    Column("origin", JSON, nullable=False),  # source of items and images, with hashes
    Column("open", Boolean, nullable=False, server_default=text("true")),
    Column("at", Float, nullable=False),
)  # fmt: skip

# People who took part in `other` may not take part in `study`.
exclusion = Table(
    "exclusion", metadata,
    Column("study", ForeignKey("study.id"), nullable=False),
    Column("other", ForeignKey("study.id"), nullable=False),
    PrimaryKeyConstraint("study", "other"),
)  # fmt: skip

# The images and captions of one question, and the accepted answers if it is gold.
item = Table(
    "item", metadata,
    Column("id", Integer, primary_key=True),
    Column("study", ForeignKey("study.id"), nullable=False),
    Column("key", String(300), nullable=False),  # its id in files
    Column("images", JSON, nullable=False),  # files in pictures/
    Column("captions", JSON, nullable=False),
    Column("block", String(40), nullable=False, server_default=""),
    Column("example", Boolean, nullable=False, server_default=text("false")),  # displayed before the work, never asked
    Column("gold", JSON),  # None: not gold; else {question: accepted values}
    Column("body", JSON, nullable=False),  # details for exports: ids of images and captions, systems, trials
    UniqueConstraint("study", "key"),
)  # fmt: skip

# The unit of work: items that one person answers together. Everybody gets the quiz first.
hit = Table(
    "hit", metadata,
    Column("id", Integer, primary_key=True),
    Column("study", ForeignKey("study.id"), nullable=False),
    Column("quiz", Boolean, nullable=False, server_default=text("false")),
)  # fmt: skip

hit_item = Table(
    "hit_item", metadata,
    Column("hit", ForeignKey("hit.id"), nullable=False),
    Column("place", Integer, nullable=False),
    Column("item", ForeignKey("item.id"), nullable=False),
    PrimaryKeyConstraint("hit", "place"),
    Index("hit_item_by_item", "item"),
)  # fmt: skip

person = Table(
    "person", metadata,
    Column("id", Integer, primary_key=True),
    Column("key", String(200), nullable=False, unique=True),  # their name in files
    Column("role", String(10), nullable=False),
    Column("token", String(64), unique=True),  # hash of their personal token
    Column("sessions", Integer, nullable=False, server_default="0"),  # sessions with an earlier number have ended
    Column("past_tasks", Integer),
    Column("past_accepted", Float),
    Column("at", Float, nullable=False),
)  # fmt: skip

# A person in a study that they were invited to or joined.
member = Table(
    "member", metadata,
    Column("study", ForeignKey("study.id"), nullable=False),
    Column("person", ForeignKey("person.id"), nullable=False),
    Column("consented", Boolean, nullable=False, server_default=text("false")),
    Column("qualified", Boolean, nullable=False, server_default=text("false")),  # passed the quiz, or there is none
    Column("submitted", Integer, nullable=False, server_default="0"),  # HITs without the quiz
    PrimaryKeyConstraint("study", "person"),
    Index("member_by_person", "person"),
)  # fmt: skip

# One of the required answers to a HIT: open, held (until `lease`), review or done.
slot = Table(
    "slot", metadata,
    Column("id", Integer, primary_key=True),
    Column("study", ForeignKey("study.id"), nullable=False),
    Column("hit", ForeignKey("hit.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("state", String(6), nullable=False, server_default="open"),
    Column("person", ForeignKey("person.id")),
    Column("claim", String(32)),
    Column("lease", Float),  # end of the lease; 0 for a reopened slot, which is free like one with an ended lease
    UniqueConstraint("hit", "number"),
    Index("slot_free", "study", "id", sqlite_where=FREE, postgresql_where=FREE),
    Index("slot_open", "study", "id", "hit", sqlite_where=OPEN, postgresql_where=OPEN),  # covers the query of a claim
    Index("slot_lent", "study", "id", "hit", "lease", sqlite_where=LENT, postgresql_where=LENT),
    Index("slot_busy", "study", "state", sqlite_where=BUSY, postgresql_where=BUSY),
    Index("slot_of_person", "hit", "person", unique=True, sqlite_where=HAD, postgresql_where=HAD),
    Index("slot_held", "person", "study"),
)  # fmt: skip

# A person's right to a HIT. It stays when the slot goes to somebody else, so that a late submission can be stored.
claim = Table(
    "claim", metadata,
    Column("id", String(32), primary_key=True),
    Column("study", ForeignKey("study.id"), nullable=False),
    Column("hit", ForeignKey("hit.id"), nullable=False),
    Column("slot", ForeignKey("slot.id")),  # NULL: a quiz
    Column("person", ForeignKey("person.id"), nullable=False),
    Column("at", Float, nullable=False),
    Column("submitted", Float),
    Column("event", Integer),  # number of the event with the answers
    Column("verdict", String(8)),  # approve, reject or reassign
    Column("doubt", Boolean, nullable=False, server_default=text("false")),  # a gold question was answered wrong
    Column("counted", Boolean, nullable=False, server_default=text("false")),  # the answers are part of the results
    Index("claim_of_person", "person", "study", "slot"),
    Index("claim_unfinished", "person", "study", sqlite_where=BEGUN, postgresql_where=BEGUN),
    Index("claim_by_study", "study", "submitted"),
)  # fmt: skip

# HITs that a person may not get: those that they answered, and those that share an item with a HIT that they claimed.
barred = Table(
    "barred", metadata,
    Column("person", ForeignKey("person.id"), nullable=False),
    Column("hit", ForeignKey("hit.id"), nullable=False),
    PrimaryKeyConstraint("person", "hit"),
    sqlite_with_rowid=False,
)  # fmt: skip

draft = Table(
    "draft", metadata,
    Column("claim", ForeignKey("claim.id"), primary_key=True),
    Column("number", Integer, nullable=False),  # an older draft never replaces a newer one
    Column("body", JSON, nullable=False),
)  # fmt: skip

event = Table(
    "event", metadata,
    Column("study", ForeignKey("study.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("kind", String(12), nullable=False),
    Column("person", ForeignKey("person.id")),
    Column("claim", String(32)),
    Column("body", Text, nullable=False),  # JSON text, as hashed
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    PrimaryKeyConstraint("study", "number"),
)  # fmt: skip

# The last event of each study.
head = Table(
    "head", metadata,
    Column("study", ForeignKey("study.id"), primary_key=True),
    Column("number", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
)  # fmt: skip
