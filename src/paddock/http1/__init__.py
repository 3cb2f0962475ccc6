"""HTTP/1: one reader and one writer, which the gateway and the egress proxy share."""
