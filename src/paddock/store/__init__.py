"""Remembering: SQLite or PostgreSQL, the same words for both."""
