"""vLLM in this process, with what keeps it small."""

import os

from pushscope.lab.engine.cures import ALL_CURES, apply
from tests.vllm.pair import ENVIRONMENT

os.environ.update(ENVIRONMENT)
apply(ALL_CURES)
