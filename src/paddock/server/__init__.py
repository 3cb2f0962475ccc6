"""The composition root: everything that one server process needs, built in one place."""
