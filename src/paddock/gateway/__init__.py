"""The gateway: every port of every sandbox, reached by a URL."""
