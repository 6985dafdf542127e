"""Stand-ins for the models that vLLM's tests take from a model hub, so that they run offline and alike twice.

Most tests want a model's configuration only, for which a few public numbers do; the few that start an engine
get a tiny model with random weights under the name they ask for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pushscope.lab.model import make_model

_OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "max_position_embeddings": 2048,
    "torch_dtype": "float16",
    "vocab_size": 50272,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "facebook/opt-125m": _OPT
    | {
        "hidden_size": 768,
        "word_embed_proj_dim": 768,
        "ffn_dim": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
    },
    "facebook/opt-350m": _OPT
    | {
        "hidden_size": 1024,
        "word_embed_proj_dim": 512,
        "ffn_dim": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "do_layer_norm_before": False,
    },
}
ENGINES = ("Qwen/Qwen3-0.6B",)
"""Models that an engine is started on."""


def make_hub(home: Path) -> dict[str, str]:
    """Write the stand-ins to ``home``, a cache as huggingface_hub lays it out; the environment that selects it."""
    for name, configuration in CONFIGURATIONS.items():
        (_snapshot(home, name) / "config.json").write_text(json.dumps(configuration))
    for name in ENGINES:
        make_model(_snapshot(home, name))
    return {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def _snapshot(home: Path, name: str) -> Path:
    repository = home / "hub" / f"models--{name.replace('/', '--')}"
    revision = "0" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    snapshot = repository / "snapshots" / revision
    snapshot.mkdir(parents=True)
    return snapshot
