"""Statements of claiming and submitting, straight to the database's driver.

SQLAlchemy writes them, once for each kind of database. To have it run them as well would take longer than the database itself, and
PostgreSQL would be waited for after each; here those that need nothing of each other are sent together, and what is only written
goes with whatever is asked next.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Dialect, Table, insert
from sqlalchemy.dialects import sqlite

if TYPE_CHECKING:
    from sqlalchemy.sql.base import Executable

    Asked = tuple[Executable, Mapping[str, Any]]
    Row = Any  # a named tuple, by the names of the columns

NAMED = sqlite.dialect(paramstyle="named")


@dataclass(frozen=True)
class Said:
    """What the database said to one statement: rows where it returns some, and how many it changed."""

    rows: list[Row]
    changed: int

    @property
    def first(self) -> Row | None:
        return self.rows[0] if self.rows else None


@dataclass(frozen=True)
class Written:
    """A statement as the driver takes it; `given` are values that stand in the statement itself."""

    text: str
    given: Mapping[str, Any]
    to_driver: tuple[tuple[str, Callable[[Any], Any]], ...]
    from_driver: Callable[[Any], Row] | None  # none where no rows come

    def values(self, told: Mapping[str, Any]) -> dict[str, Any]:
        out = {**self.given, **told}
        for name, changed in self.to_driver:
            out[name] = changed(out[name])
        return out

    def said(self, cursor: Any) -> Said:
        rows = [] if self.from_driver is None else list(map(self.from_driver, cursor.fetchall()))
        return Said(rows, cursor.rowcount)


_WRITTEN: dict[tuple[Any, ...], Written] = {}  # of statements that live as long as the process: those in `queries`


# Of each transaction on PostgreSQL: what it is still to be sent, and how many rows the first of its parts must change.
_UNSENT: WeakKeyDictionary[Connection, list[tuple[Written, Mapping[str, Any], tuple[int, ...]]]] = WeakKeyDictionary()


def ask(connection: Connection, statement: Executable, told: Mapping[str, Any]) -> Said:
    """Run one statement of `queries` in the transaction of this connection."""
    written = _written(statement, connection.dialect)
    if connection.dialect.name == "sqlite":
        return written.said(_driver(connection).execute(written.text, written.values(told)))
    return _sent(connection, [(written, told)])[0]


def ask_all(connection: Connection, *asked: Asked) -> list[Said]:
    """Run several, in this order; PostgreSQL gets them all before it is waited for."""
    if connection.dialect.name == "sqlite":
        return [ask(connection, statement, told) for statement, told in asked]
    return _sent(connection, [(_written(statement, connection.dialect), told) for statement, told in asked])


def ask_each(connection: Connection, asked: Sequence[Sequence[Asked]]) -> list[list[Said]]:
    """What is said to several who ask at once, to each what they asked."""
    said = iter(ask_all(connection, *(one for some in asked for one in some)))
    return [[next(said) for _ in some] for some in asked]


def write_all(connection: Connection, *asked: Asked, changing: tuple[int, ...] = ()) -> None:
    """Run several that write, none of which needs to see what another wrote; the first must change so many rows each.

    PostgreSQL gets them as one statement, so a parameter has the same value in all of them; and it gets them with whatever is asked
    next in this transaction, or at its end, so that nobody waits for them alone. If they fail, that fails.
    """
    if connection.dialect.name == "sqlite":
        _require([ask(connection, statement, told).changed for statement, told in asked], changing)
        return
    statements = tuple(statement for statement, _ in asked)
    joined = _WRITTEN.get(statements)
    if joined is None:
        joined = _WRITTEN[statements] = _joined([_written(one, connection.dialect) for one in statements])
    told: dict[str, Any] = {}
    for _, values in asked:
        if any(told.get(name, value) != value for name, value in values.items()):
            raise ValueError(f"{values} and {told} differ, but stand in one statement")
        told |= values
    _UNSENT.setdefault(connection, []).append((joined, told, changing))


def send_first(connection: Connection, text: str) -> None:
    """Have PostgreSQL run a statement before all others of this transaction."""
    _UNSENT.setdefault(connection, []).append((Written(text, {}, (), None), {}, ()))


def send_rest(connection: Connection) -> None:
    """Send what is still to be sent: before anybody else uses this connection, and before its transaction ends."""
    if connection in _UNSENT:
        _sent(connection, [])


def _sent(connection: Connection, asked: Sequence[tuple[Written, Mapping[str, Any]]]) -> list[Said]:
    """Send all of these to PostgreSQL, behind what was still to be sent, then wait for what it says."""
    before = _UNSENT.pop(connection, [])
    driver, every = _driver(connection), [*((one, told) for one, told, _ in before), *asked]
    with driver.pipeline() if len(every) > 1 else nullcontext():
        cursors = [driver.execute(one.text, one.values(told)) for one, told in every]
    said = [one.said(cursor) for (one, _), cursor in zip(every, cursors, strict=True)]
    for (_, _, changing), one in zip(before, said, strict=False):
        if changing:
            _require(one.rows[0], changing)
    return said[len(before) :]


def _require(changed: Sequence[int], expected: tuple[int, ...]) -> None:
    if tuple(changed[: len(expected)]) != expected:
        raise RuntimeError(f"{list(changed)} rows changed in the hands of their only writer, and {list(expected)} were expected")


def write_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write many rows with the same columns; to PostgreSQL as a copy, which asks nothing back for each."""
    if not rows:
        return
    if connection.dialect.name == "sqlite":
        connection.execute(insert(table), rows)
        return
    send_rest(connection)
    types = [table.c[name].type.dialect_impl(connection.dialect) for name in rows[0]]
    makes = [one.bind_processor(connection.dialect) for one in types]
    with _driver(connection).cursor().copy(f"COPY {table.name} ({', '.join(rows[0])}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row([value if make is None else make(value) for make, value in zip(makes, row.values(), strict=True)])


def _joined(parts: list[Written]) -> Written:
    """Statements that write, as one that tells how many rows each of them has changed."""
    named = [f"w{n} AS ({one.text} RETURNING 1)" for n, one in enumerate(parts)]
    counts = [f"(SELECT count(*) FROM w{n})" for n in range(len(parts))]
    given = {name: value for one in parts for name, value in one.given.items()}
    changed = tuple({name: made for one in parts for name, made in one.to_driver}.items())
    return Written(f"WITH {', '.join(named)} SELECT {', '.join(counts)}", given, changed, tuple)


def _driver(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


def _written(statement: Executable, dialect: Dialect) -> Written:
    known = _WRITTEN.get((statement, dialect.name))
    if known is None:
        known = _WRITTEN[statement, dialect.name] = _write(statement, NAMED if dialect.name == "sqlite" else dialect)
    return known


def _write(statement: Any, dialect: Dialect) -> Written:
    """A statement and what SQLAlchemy's types make of its values; PostgreSQL's driver knows all types by itself."""
    compiled = statement.compile(dialect=dialect)
    binds = [(name, one, one.type.dialect_impl(dialect).bind_processor(dialect)) for one, name in compiled.bind_names.items()]
    given = {name: one.effective_value for name, one, _ in binds if not one.required}
    columns = statement.exported_columns
    types = [one.type.dialect_impl(dialect) for one in columns] if dialect.name == "sqlite" else []
    makes = [one.result_processor(dialect, None) for one in types]
    return Written(str(compiled), given, tuple((name, made) for name, _, made in binds if made), _reader(columns.keys(), makes))


def _reader(names: Sequence[str], makes: Sequence[Callable[[Any], Any] | None]) -> Callable[[Any], Row] | None:
    """From a row of the driver's to one with names, and with the types of the columns."""
    if not names:
        return None
    make_row: Callable[[Iterable[Any]], Row] = namedtuple("Row", names, rename=True)._make  # type: ignore[attr-defined]
    if not any(makes):
        return make_row
    return lambda row: make_row(value if make is None else make(value) for make, value in zip(makes, row, strict=True))
