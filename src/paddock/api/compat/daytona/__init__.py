"""Daytona's API on Paddock: its control plane, and the toolbox that its sandboxes have."""
