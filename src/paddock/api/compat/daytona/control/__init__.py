"""Daytona's control plane: sandboxes and their properties."""
