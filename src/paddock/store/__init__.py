"""Persistence: SQLite or PostgreSQL behind one interface."""
