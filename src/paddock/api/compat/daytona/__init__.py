"""Daytona's API: its control plane, and the toolbox inside its sandboxes."""
