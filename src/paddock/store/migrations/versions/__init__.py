"""The schema's history. A released migration is never edited."""
