"""E2B: its control plane under ``/e2b``, and its in-sandbox API on port 49983 of every sandbox."""
