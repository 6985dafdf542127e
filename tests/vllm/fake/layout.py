"""How an engine of a scenario is laid out, and vLLM's own configuration made from that."""

from __future__ import annotations

import copy
import functools
import inspect
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEAD_SIZE = 32
NUM_LAYERS = 4
LATENT = 64
"""MLA: numbers a token and layer."""


@dataclass(frozen=True)
class Layout:
    """One engine. ``block_size`` is the scheduler's; ``kernel_block_size`` what the attention kernel takes."""

    tp: int = 1
    pp: int = 1
    kv_heads: int = 8
    mla: bool = False
    window: int | None = None
    """A second cache group of half of the layers, with a sliding window of so many tokens."""
    block_size: int = 32
    kernel_block_size: int | None = None
    num_blocks: int = 64
    max_tokens_a_step: int = 512
    prefix_caching: bool = False
    host_buffer: bool = False
    extra: dict[str, Any] = field(default_factory=dict)
    """Of ``kv_connector_extra_config``."""

    @property
    def heads_per_rank(self) -> int:
        return 1 if self.mla else max(1, self.kv_heads // self.tp)

    @property
    def physical_per_logical(self) -> int:
        return self.block_size // (self.kernel_block_size or self.block_size)

    def heads_of(self, tp_rank: int) -> list[int]:
        """The KV heads that a rank holds, by their number in the model. With fewer heads than ranks, a copy."""
        if self.mla:
            return [0]
        if self.tp > self.kv_heads:
            return [tp_rank * self.kv_heads // self.tp]
        first = tp_rank * self.heads_per_rank
        return list(range(first, first + self.heads_per_rank))

    def layers_of(self, pp_rank: int) -> list[int]:
        share = NUM_LAYERS // self.pp
        return list(range(pp_rank * share, (pp_rank + 1) * share))


def layer_name(layer: int) -> str:
    return f"model.layers.{layer}.self_attn.attn"


def is_windowed(layout: Layout, layer: int) -> bool:
    return layout.window is not None and layer % 2 == 1


def kv_cache_config(layout: Layout, layers: list[int]) -> Any:
    """vLLM's ``KVCacheConfig`` for these layers."""
    import torch
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        MLAAttentionSpec,
        SlidingWindowSpec,
    )

    common = {"block_size": layout.block_size, "dtype": torch.float32}
    heads = {"num_kv_heads": layout.heads_per_rank, "head_size": HEAD_SIZE}
    full = (
        MLAAttentionSpec(num_kv_heads=1, head_size=LATENT, **common)
        if layout.mla
        else FullAttentionSpec(**heads, **common)
    )
    groups = [KVCacheGroupSpec([layer_name(n) for n in layers if not is_windowed(layout, n)], full)]
    if layout.window is not None:
        windowed = SlidingWindowSpec(**heads, **common, sliding_window=layout.window)
        groups.append(KVCacheGroupSpec([layer_name(n) for n in layers if is_windowed(layout, n)], windowed))
    return KVCacheConfig(num_blocks=layout.num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)


@functools.cache
def _model_config(kv_heads: int, *, mla: bool) -> Any:
    from vllm.config import ModelConfig

    # Of one name everywhere: P and D compare it when they shake hands, and may be processes of their own.
    directory = (
        Path(tempfile.gettempdir())
        / f"pushscope-model-{os.getuid()}"
        / ("mla" if mla else f"{kv_heads}-heads")
    )
    directory.mkdir(parents=True, exist_ok=True)
    common = {
        "vocab_size": 512,
        "hidden_size": 16 * HEAD_SIZE,
        "intermediate_size": 64,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": 16,
        "max_position_embeddings": 4096,
        "torch_dtype": "float32",
    }
    if mla:
        config = common | {
            "model_type": "deepseek_v2",
            "architectures": ["DeepseekV2ForCausalLM"],
            "num_key_value_heads": 16,
            "kv_lora_rank": 32,
            "qk_rope_head_dim": 32,
            "qk_nope_head_dim": 32,
            "v_head_dim": 32,
            "q_lora_rank": None,
            "n_routed_experts": 4,
            "num_experts_per_tok": 1,
            "moe_intermediate_size": 64,
        }
    else:
        config = common | {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "num_key_value_heads": kv_heads,
            "head_dim": HEAD_SIZE,
        }
    (directory / "config.json").write_text(json.dumps(config))
    return ModelConfig(
        model=str(directory), tokenizer=str(directory), skip_tokenizer_init=True, dtype="float32",
        max_model_len=4096, seed=0,
    )  # fmt: skip


def vllm_config(layout: Layout, transfer: dict[str, Any], *, rank: int = 0) -> Any:
    """vLLM's ``VllmConfig``; ``transfer`` is the ``--kv-transfer-config`` that a user would write."""
    from vllm.config import (
        CacheConfig,
        DeviceConfig,
        KVTransferConfig,
        ParallelConfig,
        SchedulerConfig,
        VllmConfig,
    )

    model = copy.copy(_model_config(layout.kv_heads, mla=layout.mla))
    scheduler = {
        "max_num_seqs": 16,
        "max_num_batched_tokens": layout.max_tokens_a_step,
        "max_model_len": 4096,
        "enable_chunked_prefill": True,
        "is_encoder_decoder": False,
        "disable_hybrid_kv_cache_manager": False,
        "async_scheduling": False,
    }
    known = inspect.signature(SchedulerConfig).parameters
    cache = CacheConfig(
        block_size=layout.block_size,
        gpu_memory_utilization=0.9,
        cache_dtype="auto",
        enable_prefix_caching=layout.prefix_caching,
    )
    config = VllmConfig(
        scheduler_config=SchedulerConfig(**{k: v for k, v in scheduler.items() if k in known}),
        model_config=model,
        cache_config=cache,
        parallel_config=ParallelConfig(
            tensor_parallel_size=layout.tp,
            pipeline_parallel_size=layout.pp,
            distributed_executor_backend="mp" if layout.tp * layout.pp > 1 else "uni",
        ),
        kv_transfer_config=KVTransferConfig(**transfer),
        device_config=DeviceConfig("cpu"),
    )
    config.parallel_config.rank = rank
    config.cache_config.num_gpu_blocks = layout.num_blocks
    config.cache_config.block_size = layout.block_size  # the platform may have had another idea
    config.cache_config.enable_prefix_caching = layout.prefix_caching
    config.scheduler_config.disable_hybrid_kv_cache_manager = False
    if hasattr(config.cache_config, "kv_cache_layout"):
        config.cache_config.kv_cache_layout = "LBHNC"
    return config
