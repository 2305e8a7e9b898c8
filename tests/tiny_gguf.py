"""Writes tiny GGUF models with random weights, for tests of everything that touches llama.cpp.

Two layers, 64 channels, a byte-level vocabulary: a file of 0.4 MB that llama.cpp loads in
milliseconds. Every text tokenises and comes back unchanged. The same arguments always give the
same bytes. Architectures:

    llama    dense attention, rewinds freely
    gemma3   a sliding window of 16 tokens in the first layer, full attention in the second
    lfm2     hybrid: a short convolution (recurrent) in the first layer, attention in the second
    mamba    recurrent throughout: cannot drop single tokens
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

ARCHITECTURES = ("llama", "gemma3", "lfm2", "mamba")

BOS, EOS, IM_START, IM_END, PAD = range(5)
SPECIAL = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>", "<|pad|>")
FIRST_BYTE = len(SPECIAL)  # the token of byte b is FIRST_BYTE + b
FIRST_PAIR = FIRST_BYTE + 256  # from here on two-letter tokens: "ee", "et", ...

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

LAYERS, CHANNELS, HIDDEN, HEADS, KV_HEADS, HEAD = 2, 64, 128, 4, 2, 16
INNER, STATE, KERNEL, RANK = 2 * CHANNELS, 16, 4, 4  # mamba; llama.cpp insists on the factor 2
WINDOW = 16  # gemma3
LOGIT_SPREAD = 4.0  # standard deviation of the logits: top-2 gaps of about 1

Weights = NDArray[np.float32]


def write_tiny_gguf(
    path: Path,
    *,
    arch: str = "llama",
    seed: int = 0,
    noise: float = 0.0,
    n_vocab: int = 300,
    n_ctx_train: int = 512,
    chat_template: str | None = CHATML,
    token_texts: Mapping[int, str] | None = None,
    add_bos: bool = True,
    eos: int = EOS,
    quant: str = "F32",
    pooling: int | None = None,
) -> Path:
    """Write a model and return its path.

    noise: how far the weights are from those of the same seed without noise, as a share of
        their size. A file with a little noise makes a draft model that often agrees.
    token_texts: replaces the text of single tokens by id. All texts must stay distinct:
        llama.cpp aborts the process otherwise.
    eos: the id named as end of sequence. <|im_end|> ends a generation whatever this is.
    quant: type of the matrices: F32, F16, or one that the gguf package can quantize to, such
        as Q8_0 and Q4_0.
    pooling: how it makes embeddings, as llama.cpp counts: 1 mean, 2 first, 3 last, 4 rank.

    Raises ValueError when n_vocab has no room for the special, byte and one two-letter token.
    """
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(f"tiny {arch} {seed}")
    writer.add_context_length(n_ctx_train)
    _describe(writer, arch)
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType(pooling))
    _add_tokenizer(writer, _texts(n_vocab, token_texts or {}), add_bos, eos)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    for name, weights in _weights(arch, seed, noise, n_vocab):
        _add_tensor(writer, name, weights, gguf.GGMLQuantizationType[quant])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_truncated(path: Path, keep: float = 0.5) -> Path:
    """A model whose download stopped: only the first `keep` of its bytes."""
    whole = write_tiny_gguf(path).read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    return path


def write_wrong_magic(path: Path) -> Path:
    """A file that is no GGUF at all, but as long as one."""
    path.write_bytes(b"NOPE" + write_tiny_gguf(path).read_bytes()[4:])
    return path


def write_unsupported_architecture(path: Path) -> Path:
    """A sound GGUF file of an architecture that llama.cpp has never heard of."""
    return write_tiny_gguf(path, arch="hovercraft")


def write_changed_vocabulary(
    path: Path, *, token: int = FIRST_PAIR + 9, arch: str = "llama"
) -> Path:
    """A model whose vocabulary differs from the usual one at this token only."""
    return write_tiny_gguf(path, arch=arch, token_texts={token: "~~"})


def _describe(writer: gguf.GGUFWriter, arch: str) -> None:
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(CHANNELS)
    writer.add_feed_forward_length(0 if arch == "mamba" else HIDDEN)
    writer.add_head_count(0 if arch == "mamba" else HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    if arch == "mamba":
        writer.add_ssm_conv_kernel(KERNEL)
        writer.add_ssm_inner_size(INNER)
        writer.add_ssm_state_size(STATE)
        writer.add_ssm_time_step_rank(RANK)
        return
    # No key and value heads is how lfm2 marks a layer as a convolution.
    writer.add_head_count_kv([0, KV_HEADS] if arch == "lfm2" else KV_HEADS)
    if arch == "lfm2":
        writer.add_shortconv_l_cache(KERNEL - 1)
    if arch == "gemma3":
        writer.add_sliding_window(WINDOW)
        writer.add_sliding_window_pattern(2)


def _byte_texts() -> list[str]:
    """How byte-level BPE writes each byte: itself if printable, else a letter from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _texts(n_vocab: int, changed: Mapping[int, str]) -> list[str]:
    pairs = ["".join(pair) for pair in product("etaoinshrdlucmfwypvbgkjqxz", repeat=2)]
    texts = [*SPECIAL, *_byte_texts(), *pairs]
    texts += [f"<|unused_{at}|>" for at in range(len(texts), n_vocab)]
    if n_vocab <= FIRST_PAIR:
        raise ValueError(f"n_vocab must be above {FIRST_PAIR}, not {n_vocab}")
    return [changed.get(at, text) for at, text in enumerate(texts[:n_vocab])]


def _add_tokenizer(writer: gguf.GGUFWriter, texts: list[str], add_bos: bool, eos: int) -> None:
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    special = [at < FIRST_BYTE or text.startswith("<|") for at, text in enumerate(texts)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")  # the default one drops spaces before punctuation
    writer.add_token_list(texts)
    writer.add_token_types([control if is_special else normal for is_special in special])
    pairs = [text for text in texts[FIRST_PAIR:] if set(text) <= set(string.ascii_lowercase + "~")]
    writer.add_token_merges([" ".join(pair) for pair in pairs])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(eos)
    writer.add_pad_token_id(PAD)
    writer.add_add_bos_token(add_bos)
    writer.add_add_eos_token(False)


def _shapes(arch: str, n_vocab: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    norm = "token_embd_norm" if arch == "lfm2" else "output_norm"
    yield "token_embd.weight", (n_vocab, CHANNELS)
    yield f"{norm}.weight", (CHANNELS,)
    yield "output.weight", (n_vocab, CHANNELS)
    for layer in range(LAYERS):
        parts = dict(_mamba_shapes() if arch == "mamba" else _layer_shapes(arch, layer))
        for name, shape in parts.items():
            yield f"blk.{layer}.{name}", shape


def _layer_shapes(arch: str, layer: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "attn_norm.weight", (CHANNELS,)
    if arch == "lfm2" and layer == 0:
        yield "shortconv.conv.weight", (CHANNELS, KERNEL - 1)
        yield "shortconv.in_proj.weight", (3 * CHANNELS, CHANNELS)
        yield "shortconv.out_proj.weight", (CHANNELS, CHANNELS)
    else:
        yield "attn_q.weight", (HEADS * HEAD, CHANNELS)
        yield "attn_k.weight", (KV_HEADS * HEAD, CHANNELS)
        yield "attn_v.weight", (KV_HEADS * HEAD, CHANNELS)
        yield "attn_output.weight", (CHANNELS, HEADS * HEAD)
        if arch in ("gemma3", "lfm2"):
            yield "attn_q_norm.weight", (HEAD,)
            yield "attn_k_norm.weight", (HEAD,)
    if arch == "gemma3":
        yield "post_attention_norm.weight", (CHANNELS,)
        yield "post_ffw_norm.weight", (CHANNELS,)
    yield "ffn_norm.weight", (CHANNELS,)
    yield "ffn_gate.weight", (HIDDEN, CHANNELS)
    yield "ffn_up.weight", (HIDDEN, CHANNELS)
    yield "ffn_down.weight", (CHANNELS, HIDDEN)


def _mamba_shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "attn_norm.weight", (CHANNELS,)
    yield "ssm_in.weight", (2 * INNER, CHANNELS)
    yield "ssm_conv1d.weight", (INNER, KERNEL)
    yield "ssm_conv1d.bias", (INNER,)
    yield "ssm_x.weight", (RANK + 2 * STATE, INNER)
    yield "ssm_dt.weight", (INNER, RANK)
    yield "ssm_dt.bias", (INNER,)
    yield "ssm_a", (INNER, STATE)
    yield "ssm_d", (INNER,)
    yield "ssm_out.weight", (CHANNELS, INNER)


def _weights(arch: str, seed: int, noise: float, n_vocab: int) -> Iterator[tuple[str, Weights]]:
    random, other = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    for name, shape in _shapes(arch, n_vocab):
        weights = _start(name, shape, random)
        if noise and len(shape) == 2 and not name.endswith("ssm_a"):
            weights = weights + noise * _start(name, shape, other)
        yield name, weights.astype(np.float32)


def _start(name: str, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[np.float64]:
    if name.endswith(("norm.weight", "ssm_d")):
        return np.ones(shape)
    if name.endswith("ssm_a"):
        return -np.broadcast_to(np.arange(1.0, STATE + 1), shape)  # decays, fast and slow
    if name.endswith("bias"):
        return random.normal(0.0, 0.5, shape)
    gain = {"output.weight": LOGIT_SPREAD, "token_embd.weight": 0.5 * math.sqrt(CHANNELS)}
    # Queries and keys are large so that attention picks out tokens instead of averaging.
    default = 2.0 if name.endswith(("attn_q.weight", "attn_k.weight")) else 1.5
    return random.normal(0.0, gain.get(name, default) / math.sqrt(shape[-1]), shape)


def _add_tensor(
    writer: gguf.GGUFWriter, name: str, weights: Weights, kind: gguf.GGMLQuantizationType
) -> None:
    # F32 stays what llama.cpp's converter leaves so, and rows that no quantized block divides.
    small = name.endswith(("conv.weight", "conv1d.weight", "ssm_a"))
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    if weights.ndim == 1 or small or weights.shape[-1] % block:
        kind = gguf.GGMLQuantizationType.F32
    writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)
