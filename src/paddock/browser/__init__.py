"""The browser: a real Chromium inside a sandbox, driven through Playwright by a small server on this port.

What is in ``inside`` runs in the sandbox, in Node.js; the rest brings it there and speaks to it.
"""

PORT = 6080
