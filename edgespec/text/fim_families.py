"""How the code models that edgespec knows are asked to fill a gap.

One row a family: the spelling of its tokens, their order, and what must end an answer. Where the
spelling is shared, `needs` and `named` tell families apart; the first row that fits counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from edgespec.text.fim import Fim, Order

# The keys of a GGUF file for each role, the usual one first.
_ROLES = {
    "prefix": ("tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"),
    "suffix": ("tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"),
    "middle": ("tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"),
    "pad": ("tokenizer.ggml.fim_pad_token_id",),
    "repo": ("tokenizer.ggml.fim_rep_token_id",),
    "file": ("tokenizer.ggml.fim_sep_token_id",),
}
_REQUIRED = ("prefix", "suffix", "middle")
_TITLES = ("general.name", "general.basename")
KEYS = (*(key for keys in _ROLES.values() for key in keys), *_TITLES)
"""The metadata that `find_fim` reads."""

_CONTROL = re.compile(r"▁?(<.+>|\[.+\])")
_NO_ROLE = ("unused", "reserved", "<0x")
_WAY_OUT = "take a code model such as qwen2.5-coder"


@dataclass(frozen=True, slots=True)
class Family:
    """Texts of tokens, "" where the family has none. What they are for is told at `Fim`.

    ends: further tokens that end an answer. spelled: what the model writes instead of an end,
    whether it has a token for it or not.
    needs: tokens that tell the family from others with the same spelling. named: what the name of
    the model must hold, because models that were never trained for it have the tokens as well.
    """

    name: str
    prefix: str
    suffix: str
    middle: str
    order: Order = "PSM"
    repo: str = ""
    file: str = ""
    pad: str = ""
    mark: str = ""
    after_repo: str = ""
    path_inside: bool = False
    needs_bos: bool = False
    ends: tuple[str, ...] = ()
    spelled: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    named: str = ""

    @property
    def required(self) -> tuple[str, ...]:
        """The tokens without which there is no filling in the middle."""
        return tuple(text for text in (self.prefix, self.suffix, self.middle) if text)

    @property
    def texts(self) -> tuple[str, ...]:
        """Every token it may have."""
        optional = (self.repo, self.file, self.pad, *self.ends, *self.spelled, *self.needs)
        return (*self.required, *(text for text in optional if text))


_PIPES = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
_PLAIN = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
_CODE = ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>")
_GLM_ENDS = ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|observation|>")


def _code_llama(space: str) -> Family:
    """Some converters keep the space in front of the tokens, some do not."""
    prefix, suffix, middle, end = (f"{space}<{name}>" for name in ("PRE", "SUF", "MID", "EOT"))
    return Family("CodeLlama", prefix, suffix, middle, needs_bos=True, ends=(end, "</s>"))


FAMILIES = (
    Family(
        "Qwen",
        *_PIPES,
        repo="<|repo_name|>",
        file="<|file_sep|>",
        pad="<|fim_pad|>",
        after_repo="\n",
        ends=("<|endoftext|>", "<|im_end|>"),
        spelled=("<|cursor|>",),
        needs=("<|file_sep|>",),
    ),
    Family(
        "CodeGemma",
        *_PIPES,
        file="<|file_separator|>",
        needs_bos=True,
        ends=("<eos>", "<end_of_turn>"),
        needs=("<|file_separator|>",),
    ),
    Family(
        "Granite 4",
        *_PIPES,
        repo="<|reponame|>",
        file="<|filename|>",
        pad="<|fim_pad|>",
        ends=("<|end_of_text|>", "<|endoftext|>", "<|im_end|>"),
    ),
    Family(
        "Mellum",
        *_PLAIN,
        "SPM",
        repo="<reponame>",
        file="<filename>",
        pad="<fim_pad>",
        ends=("<|endoftext|>", "<|im_end|>"),
        named="mellum",
    ),
    Family(
        "StarCoder2",
        *_PLAIN,
        repo="<repo_name>",
        file="<file_sep>",
        pad="<fim_pad>",
        path_inside=True,
        ends=("<|endoftext|>",),
        needs=("<file_sep>",),
    ),
    # Granite up to 3 has the tokens of the first StarCoder.
    Family(
        "StarCoder",
        *_PLAIN,
        repo="<reponame>",
        file="<filename>",
        pad="<fim_pad>",
        ends=("<|endoftext|>", "<|end_of_text|>", "<|im_end|>"),
    ),
    Family(
        "SantaCoder",
        *("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
        pad="<fim-pad>",
        ends=("<|endoftext|>",),
    ),
    # The bars are U+FF5C and the spaces U+2581: with the ASCII ones it is no token.
    Family(
        "DeepSeek",
        *("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
        mark="#",
        ends=("<｜end▁of▁sentence｜>", "<|EOT|>"),
    ),
    _code_llama("▁"),
    _code_llama(""),
    Family(
        "Codestral",
        *("[PREFIX]", "[SUFFIX]", ""),
        "SPM",
        mark="+++++ ",
        needs_bos=True,
        ends=("</s>",),
        named="codestral",
    ),
    Family(
        "Seed-Coder",
        *("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"),
        "SPM",
        ends=("<[end▁of▁sentence]>",),
    ),
    Family("CodeGeeX", *_CODE, "SPM", ends=_GLM_ENDS, named="codegeex"),
    Family("GLM", *_CODE, ends=_GLM_ENDS),
    Family(
        "Falcon",
        *("<|prefix|>", "<|suffix|>", "<|middle|>"),
        ends=("<|endoftext|>", "<|end_of_text|>", "<|im_end|>"),
    ),
)

UNKNOWN = Family(
    "unknown",
    *("", "", ""),
    after_repo="\n",
    ends=("<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "</s>", "<eos>"),
)
"""For a file that names its tokens itself and is of no family of the table."""


class Names(Protocol):
    """How tokens are written in a vocabulary."""

    @property
    def size(self) -> int: ...

    def texts(self, start: int, stop: int) -> Sequence[bytes]:
        """How the tokens start..stop-1 are written."""


def find_fim(vocabulary: Names, metadata: Mapping[str, Any], name: str = "") -> Fim | str:
    """How this model fills in the middle, or one line that says why it cannot.

    metadata: of the GGUF file; token ids in it count more than the table of families.
    name: what the user calls the model; some families are known by it alone.
    """
    ids = _look_up(vocabulary)
    given = _given(vocabulary, metadata)
    titles = [str(metadata.get(key) or "") for key in _TITLES]
    known_as = " ".join([name, *titles]).lower()
    for family in FAMILIES:
        needed = (*family.required, *family.needs)
        if family.named in known_as and all(text in ids for text in needed):
            return _fim(family, ids, given)
    if all(role in given for role in _REQUIRED):
        return _fim(UNKNOWN, ids, given)
    return _reason(ids, name or titles[0] or "The model")


def _look_up(vocabulary: Names) -> dict[str, int]:
    """Where the vocabulary has the tokens of the table."""
    wanted = {text.encode(): text for family in (*FAMILIES, UNKNOWN) for text in family.texts}
    found: dict[str, int] = {}
    for token, text in enumerate(vocabulary.texts(0, vocabulary.size)):
        if text in wanted:
            found.setdefault(wanted[text], token)
    return found


def _given(vocabulary: Names, metadata: Mapping[str, Any]) -> dict[str, int]:
    """The token ids that the file names for each role and that can be what it says."""
    found: dict[str, int] = {}
    for role, keys in _ROLES.items():
        for key in keys:
            token = _number(metadata.get(key))
            if 0 <= token < vocabulary.size and _is_control(vocabulary.texts(token, token + 1)[0]):
                found.setdefault(role, token)
    return found


def _number(value: object) -> int:
    """A token id, as a number or, as llama.cpp gives it, as a text; -1 for anything else."""
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < 10 else -1
    return value if isinstance(value, int) else -1


def _is_control(text: bytes) -> bool:
    # Converters gave every Llama and Gemma the ids that CodeLlama and CodeGemma have. In the
    # others there are words or unused tokens in these places.
    name = text.decode("utf-8", errors="replace")
    return bool(_CONTROL.fullmatch(name)) and not any(word in name for word in _NO_ROLE)


def _fim(family: Family, ids: Mapping[str, int], given: Mapping[str, int]) -> Fim:
    roles = {role: given.get(role, ids.get(getattr(family, role))) for role in _ROLES}
    if family is not UNKNOWN and not family.middle:
        roles["middle"] = None  # a key would name a token that is never placed
    prefix, suffix = roles["prefix"], roles["suffix"]
    assert prefix is not None
    assert suffix is not None
    ends = {ids[text] for text in (*family.ends, *family.spelled) if text in ids}
    return Fim(
        family=family.name,
        order=family.order,
        prefix=prefix,
        suffix=suffix,
        middle=roles["middle"],
        repo=roles["repo"],
        file=roles["file"],
        mark=family.mark,
        after_repo=family.after_repo,
        path_inside=family.path_inside,
        needs_bos=family.needs_bos,
        stop_tokens=frozenset(ends.union(one for one in roles.values() if one is not None)),
        stop_strings=tuple(text for text in family.spelled if text not in ids),
    )


def _reason(ids: Mapping[str, int], label: str) -> str:
    for family in FAMILIES:
        missing = [text for text in family.required if text not in ids]
        if 0 < len(missing) < len(family.required):
            there = " and ".join(text for text in family.required if text in ids)
            lacks = " or ".join(missing)
            return f"{label} has {there}, but no {lacks}, to fill in the middle; {_WAY_OUT}."
    return f"{label} has no fill-in-the-middle tokens; {_WAY_OUT}."
