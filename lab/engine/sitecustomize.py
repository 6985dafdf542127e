"""Python imports this at start-up in every process whose PYTHONPATH has this folder: the lab's engines."""

import os

from pushscope.lab.engine import broken_nixl, cures

cures.apply(os.environ)
broken_nixl.apply()
