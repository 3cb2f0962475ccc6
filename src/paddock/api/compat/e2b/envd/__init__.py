"""E2B's envd, the program that answers on port 49983 of every sandbox, played by the server on Machine."""
