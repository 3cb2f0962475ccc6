"""E2B's envd, its in-sandbox program on port 49983, implemented by the server on Machine."""
