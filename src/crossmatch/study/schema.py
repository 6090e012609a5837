"""The tables of a campaign.

`event` is what happened, append-only and chained by hashes. Answers are read from it and stand nowhere else. The tables `slot`,
`claim`, `barred` and `member` are what follows from the events, kept so that a claim is one statement; `study verify` makes
them again from the events and compares.
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
FREE, HAD = text("state IN ('open', 'held')"), text("person IS NOT NULL")  # the rows that an index is of
OPEN, LENT, BEGUN = text("state = 'open'"), text("lease IS NOT NULL"), text("submitted IS NULL")
BUSY = text("state IN ('held', 'review')")  # few, and looked for by every page of an owner

# A study of the campaign, as declared; people join by `link`.
study = Table(
    "study", metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(80), nullable=False, unique=True),
    Column("design", JSON, nullable=False),
    Column("seed", String(64), nullable=False),  # of the orders in which things are shown
    Column("link", String(64), nullable=False, unique=True),
    Column("origin", JSON, nullable=False),  # where items and pictures came from, with hashes
    Column("open", Boolean, nullable=False, server_default=text("true")),
    Column("at", Float, nullable=False),
)  # fmt: skip

# Who took part in `other` may not take part in `study`.
exclusion = Table(
    "exclusion", metadata,
    Column("study", ForeignKey("study.id"), nullable=False),
    Column("other", ForeignKey("study.id"), nullable=False),
    PrimaryKeyConstraint("study", "other"),
)  # fmt: skip

# One thing to be judged: what is shown, and what must be answered if it is gold.
item = Table(
    "item", metadata,
    Column("id", Integer, primary_key=True),
    Column("study", ForeignKey("study.id"), nullable=False),
    Column("key", String(300), nullable=False),  # its name in files
    Column("images", JSON, nullable=False),  # files in pictures/
    Column("captions", JSON, nullable=False),
    Column("block", String(40), nullable=False, server_default=""),
    Column("example", Boolean, nullable=False, server_default=text("false")),  # shown before the work, never asked
    Column("gold", JSON),  # None: not gold; else {question: accepted values}
    Column("body", JSON, nullable=False),  # all else that exports need: ids of images and captions, systems, trials
    UniqueConstraint("study", "key"),
)  # fmt: skip

# Items that are handed out together, in this order of work; a quiz is one that everybody gets first.
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
    Column("key", String(200), nullable=False, unique=True),  # what they are called in files
    Column("role", String(10), nullable=False),
    Column("token", String(64), unique=True),  # hash of what they enter by
    Column("sessions", Integer, nullable=False, server_default="0"),  # sessions of an earlier number are over
    Column("past_tasks", Integer),
    Column("past_accepted", Float),
    Column("at", Float, nullable=False),
)  # fmt: skip

# A person in a study that they were invited to or joined: what they agreed to, and how far they are.
member = Table(
    "member", metadata,
    Column("study", ForeignKey("study.id"), nullable=False),
    Column("person", ForeignKey("person.id"), nullable=False),
    Column("consented", Boolean, nullable=False, server_default=text("false")),
    Column("qualified", Boolean, nullable=False, server_default=text("false")),  # past the quiz, or none is asked
    Column("submitted", Integer, nullable=False, server_default="0"),  # HITs, quizzes apart
    PrimaryKeyConstraint("study", "person"),
    Index("member_by_person", "person"),
)  # fmt: skip

# One answer that is wanted of a HIT, made in advance. open, held (until `lease`), review or done.
slot = Table(
    "slot", metadata,
    Column("id", Integer, primary_key=True),
    Column("study", ForeignKey("study.id"), nullable=False),
    Column("hit", ForeignKey("hit.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("state", String(6), nullable=False, server_default="open"),
    Column("person", ForeignKey("person.id")),
    Column("claim", String(32)),
    Column("lease", Float),  # until when it is held; 0 where it was opened again: then it is free as one whose lease has ended
    UniqueConstraint("hit", "number"),
    Index("slot_free", "study", "id", sqlite_where=FREE, postgresql_where=FREE),
    Index("slot_open", "study", "id", "hit", sqlite_where=OPEN, postgresql_where=OPEN),  # all that a claim asks of it
    Index("slot_lent", "study", "id", "hit", "lease", sqlite_where=LENT, postgresql_where=LENT),
    Index("slot_busy", "study", "state", sqlite_where=BUSY, postgresql_where=BUSY),
    Index("slot_of_person", "hit", "person", unique=True, sqlite_where=HAD, postgresql_where=HAD),
    Index("slot_held", "person", "study"),
)  # fmt: skip

# A HIT in the hands of a person. It stays when the slot goes to another one, so that a late answer finds its place.
claim = Table(
    "claim", metadata,
    Column("id", String(32), primary_key=True),
    Column("study", ForeignKey("study.id"), nullable=False),
    Column("hit", ForeignKey("hit.id"), nullable=False),
    Column("slot", ForeignKey("slot.id")),  # none: a quiz
    Column("person", ForeignKey("person.id"), nullable=False),
    Column("at", Float, nullable=False),
    Column("submitted", Float),
    Column("event", Integer),  # the number of the event that holds the answers
    Column("verdict", String(8)),  # what a reviewer said: approve, reject, reassign
    Column("doubt", Boolean, nullable=False, server_default=text("false")),  # a gold question was answered wrong
    Column("counted", Boolean, nullable=False, server_default=text("false")),  # whether its answers are among the results
    Index("claim_of_person", "person", "study", "slot"),
    Index("claim_unfinished", "person", "study", sqlite_where=BEGUN, postgresql_where=BEGUN),
    Index("claim_by_study", "study", "submitted"),
)  # fmt: skip

# Nobody gets an item twice: the HITs that a person has answered, and those that share an item with one that they were given.
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
    Column("body", Text, nullable=False),  # json, as it was hashed
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    PrimaryKeyConstraint("study", "number"),
)  # fmt: skip

# The last event of each study: whoever appends one holds this row.
head = Table(
    "head", metadata,
    Column("study", ForeignKey("study.id"), primary_key=True),
    Column("number", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
)  # fmt: skip
