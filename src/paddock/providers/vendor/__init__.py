"""Sandboxes at a vendor's: machines that somebody else runs, with Paddock's own agent inside, over the network."""
