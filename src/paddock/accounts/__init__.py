"""Who asks, what they may do and how much: users, keys, quotas, tokens."""
