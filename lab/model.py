"""A tiny Qwen3 with random weights, made offline in seconds.

Its weights are drawn so that greedy output is varied, never ends by itself and depends on every prompt token:
a wrong or missing KV block changes the tokens. Plain random weights don't do that; their output repeats one
token.
"""

from __future__ import annotations

import json
import pydoc_data.topics
import shutil
import tempfile
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = ("<eos>", "<unk>", "<|im_start|>", "<|im_end|>")
VOCAB_SIZE = 512
FIRST_TEXT_TOKEN = len(SPECIAL_TOKENS)
"""Token ids from here to ``VOCAB_SIZE`` are text."""

_CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_model(
    directory: Path,
    *,
    layers: int = 2,
    hidden: int = 128,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    seed: int = 0,
    dtype: str = "float32",
) -> None:
    """Write a model with tokenizer and chat template to ``directory``, which appears whole or not at all.

    The same arguments give the same weights. One token's KV takes ``2 * layers * kv_heads * head_dim``
    numbers.

    Raises ImportError without torch and transformers, FileExistsError if ``directory`` holds anything else,
    another OSError if it can't be made.
    """
    try:
        taken = directory.exists() and any(directory.iterdir()) and not is_model(directory)
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    except OSError as error:
        raise OSError(
            f"Expected a place where the folder {directory} can be made, found none ({error.strerror}): "
            "name another folder."
        ) from error
    try:
        if taken:
            raise FileExistsError(
                f"Expected {directory} to be empty or a model, found other files: name another folder."
            )
        vocab_size = _save_tokenizer(partial)
        _save_weights(
            partial,
            dtype=dtype,
            seed=seed,
            config={
                "vocab_size": vocab_size,
                "hidden_size": hidden,
                "intermediate_size": 2 * hidden,
                "num_hidden_layers": layers,
                "num_attention_heads": heads,
                "num_key_value_heads": kv_heads,
                "head_dim": head_dim,
                "max_position_embeddings": 16384,
                "tie_word_embeddings": False,
                "eos_token_id": 0,
                "bos_token_id": None,
            },
        )
        shutil.rmtree(directory, ignore_errors=True)
        partial.chmod(0o755)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def is_model(directory: Path) -> bool:
    """Whether ``directory`` holds a model that vLLM could be asked to load."""
    return (directory / "config.json").is_file()


def vocab_size(directory: Path) -> int:
    """The number of token ids of a model."""
    return int(json.loads((directory / "config.json").read_text())["vocab_size"])


def _save_tokenizer(directory: Path) -> int:
    from tokenizers import Tokenizer, decoders, models, trainers  # noqa: PLC0415 - seconds, and an optional extra
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    alphabet = [chr(code) for code in range(32, 127)] + ["\n"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    # English text that every Python has: the help pages of pydoc.
    topics: dict[str, str] = pydoc_data.topics.topics
    texts = [text.encode("ascii", "ignore").decode() for text in list(topics.values())[:40]]
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>", unk_token="<unk>"
    )
    fast.chat_template = _CHAT_TEMPLATE
    fast.save_pretrained(directory)
    return int(tokenizer.get_vocab_size())


def _save_weights(directory: Path, *, config: dict[str, Any], seed: int, dtype: str) -> None:
    import torch  # noqa: PLC0415
    from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: PLC0415
    from transformers.utils import logging  # noqa: PLC0415

    logging.disable_progress_bar()
    model = Qwen3ForCausalLM(Qwen3Config(**config)).float()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                scale = 1.0 if "embed" in name else weight.shape[1] ** -0.5
                weight.normal_(0, scale, generator=generator)
            if "q_norm" in name:
                weight.fill_(4.0)  # sharp attention: single tokens matter
            if "o_proj" in name:
                weight.mul_(3.0)  # and are heard beside the residual stream
            if "lm_head" in name:
                weight.mul_(4.0)
                weight[:FIRST_TEXT_TOKEN] = 0  # never an end or another special token
    model.to(getattr(torch, dtype)).save_pretrained(directory)
