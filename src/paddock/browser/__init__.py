"""The browser: Chromium in a sandbox, controlled through Playwright by a small server on this port.

The programs in ``inside`` run in the sandbox, in Node.js; the other modules install and call them.
"""

PORT = 6080
