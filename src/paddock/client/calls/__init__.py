"""Every call that the API knows, made from plain arguments. Pure functions: nothing is sent here."""
