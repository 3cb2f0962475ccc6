"""Sandboxes at a vendor: machines that the vendor runs, with Paddock's own agent inside, over the network."""
