"""One server process: everything that it needs, built in one place."""
