"""Prunes again and again, until its parent has gone: ``python -m tests.images.pruning HOME``."""

from __future__ import annotations

import os
import sys
import time

from paddock.images.service import Images
from paddock.settings import Settings

if __name__ == "__main__":
    os.environ["PADDOCK_HOME"] = sys.argv[1]
    images = Images(Settings())
    images.prune(unused=False)
    print(flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        images.prune(unused=False)
        time.sleep(0.01)
