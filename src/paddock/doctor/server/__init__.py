"""Attacks on a whole server: by web pages and links of a sandbox, by a member with a key, by text, by connections."""
