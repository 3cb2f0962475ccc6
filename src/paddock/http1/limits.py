"""What one peer may ask of the reader and writer of HTTP/1: the same in the gateway and in the egress proxies."""

from __future__ import annotations

MAX_HEAD_BYTES = 65_536
"""Of a request's or a response's head."""
MAX_HEADERS = 256
MAX_INTERIM_RESPONSES = 64
"""Per request (100, 102, 103). A server that sends more counts as not responding."""
MAX_FRAMING_LINE_BYTES = 4096
"""Of a line between chunks: the size of one with its extensions, or a trailer."""
MAX_TRAILERS = 64
FRAMING_LINES_PER_TURN = 1_000
"""Lines between chunks that are read in one go: about a millisecond, however small the chunks are."""
LINGER_BYTES = 1 << 20
LINGER_SECONDS = 2.0
"""After a last response, so much of what a client still sends is read and dropped: closing would reset the connection
and discard the response."""
HALF_CLOSED_SECONDS = 60.0
"""For a client of the gateway to finish after the server has. Whether the server still reads shows only when something
is sent."""
