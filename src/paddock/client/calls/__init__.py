"""All calls of the API, built from plain arguments. Pure functions: nothing is sent here."""
