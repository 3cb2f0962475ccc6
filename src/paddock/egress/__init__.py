"""Egress control: the policy, the proxies that enforce it, and the record of every connection."""
