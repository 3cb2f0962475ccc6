"""Whether a server wrote down a secret: every server of the suite is searched when its life ends.

Secrets that have a form of their own (API keys, tickets, signed links) need not be registered, and tokens of sandboxes
are computed from the server's own database. Others are made with :func:`a_secret`, or named to :func:`remember`.

Where a secret has to be, it may be: the definitions of MCP servers, services and the variables of a sandbox, while it
is alive; the installation's secret in its own row. A finding names the place and the kind, never the secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import select

from paddock.store.database import Store
from paddock.store.tables import metadata

_FORMS = {
    "an API key": re.compile(r"e2b_[0-9a-f]{40}"),
    "a ticket": re.compile(r"\bt_[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])"),
    "a signed link": re.compile(r"\b[0-9]{9,12}\.[0-9a-f]{64}\b"),
}
_PURPOSES = (("access",), ("traffic",), ("mcp",), ("mcp inside",), ("files", "0"))
_OF_THE_LIVING = {("sandboxes", "env"), ("mcp_servers", "definition"), ("services", "env"), ("services", "command")}
_ALWAYS = {("installation", "value")}
_known: dict[str, str] = {}

Row = Mapping[str, Any]
Tables = Mapping[str, Iterable[Row]]


def a_secret(kind: str) -> str:
    """A new one, which is looked for everywhere from now on."""
    made = f"{kind.replace(' ', '-')}-{secrets.token_hex(12)}"
    remember(kind, made)
    return made


def remember(kind: str, secret: str) -> None:
    _known[secret] = kind


def check_home(home: Path, log: str = "") -> None:
    """A server that has stopped: its database, its notes, and what it logged."""
    file = home / "paddock.db"
    tables = _tables_of(file) if file.exists() else {}
    notes = {f"notes/{one.name}": one.read_text(errors="replace") for one in (home / "notes").glob("*")}
    _fail([*_search_tables(tables), *_search_texts({"the log": log, **notes}, _tokens(tables))])


async def check_store(store: Store) -> None:
    """A server's database, whichever it is."""
    tables: dict[str, list[Row]] = {}
    async with store.read() as connection:
        for table in metadata.sorted_tables:
            tables[table.name] = [dict(row) for row in (await connection.execute(select(table))).mappings()]
    _fail(list(_search_tables(tables)))


def _tables_of(file: Path) -> dict[str, list[Row]]:
    connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [dict(row) for row in connection.execute(f'SELECT * FROM "{name}"')] for name in names}
    finally:
        connection.close()


def _search_tables(tables: Tables) -> Iterator[str]:
    tokens = _tokens(tables)
    handle = {row["sandbox_id"] for row in tables.get("sandboxes", ()) if row["state"] != "deleted"}
    for table, rows in tables.items():
        for row in rows:
            for column, value in row.items():
                alive = (table, column) in _OF_THE_LIVING and row["sandbox_id"] in handle
                if value is None or alive or (table, column) in _ALWAYS:
                    continue
                text = value if isinstance(value, str) else json.dumps(value, default=str)
                yield from _search_texts({f"{table}.{column}": text}, tokens)


def _search_texts(texts: Mapping[str, str], tokens: Mapping[str, str]) -> Iterator[str]:
    for place, text in texts.items():
        for kind, form in _FORMS.items():
            if found := form.search(text):
                yield f"{kind} ({found[0][:8]}…) in {place}"
        for secret, kind in (*_known.items(), *tokens.items()):
            if secret in text:
                yield f"{kind} ({secret[:8]}…) in {place}"


def _tokens(tables: Tables) -> dict[str, str]:
    """Those of every sandbox, as the server computes them."""
    found = [row["value"] for row in tables.get("installation", ()) if row["name"] == "secret"]
    if not found:
        return {}
    secret = bytes.fromhex(found[0])
    made = {}
    for row in tables.get("sandboxes", ()):
        for purpose, *more in _PURPOSES:
            message = "\0".join((purpose, row["key"], *more))
            made[hmac.new(secret, message.encode(), hashlib.sha256).hexdigest()] = f"a token for {purpose}"
    return made


def _fail(findings: list[str]) -> None:
    if findings:
        raise AssertionError("a secret was written down: " + "; ".join(sorted(set(findings))[:20]))
