"""Authentication and limits: users, API keys, quotas, tokens."""
