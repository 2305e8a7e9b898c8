"""Fill in the middle: the prompt from which a code model writes what belongs in a gap.

The layout is that of llama.cpp's server for /infill: other files first, then the file with the
gap. Only the tokens placed here are control tokens; text from outside never becomes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from edgespec.protocols import Tokenizer

Order = Literal["PSM", "SPM"]
"""What the model reads first: the prefix or the suffix. The middle is always last."""

# What llama.cpp's server writes where a name is not known.
_REPO, _EXTRA, _FILE = "myproject", "tmp", "filename"
_SNIPPET = "\n\n--- snippet ---\n\n"
_FRAME = 4  # tokens around prefix and suffix, BOS included
_CUT = 32  # tokens by which the beginning of a prefix moves


class ExtraFile(NamedTuple):
    """Another file, or a part of one, that helps to fill the gap."""

    text: str
    filename: str = ""


class Gap(NamedTuple):
    """What is to be filled: the text between `prefix` + `prompt` and `suffix`.

    prompt: the line with the gap, up to it, where the prefix ends before that line.
    extra: other files, the most helpful one last. repo, filename: where the file with the gap is.
    """

    prefix: str
    suffix: str
    prompt: str = ""
    extra: Sequence[ExtraFile] = ()
    repo: str = ""
    filename: str = ""


@dataclass(frozen=True, slots=True)
class Room:
    """How long a prompt may become.

    n_predict: tokens the answer may have; below 0 for no limit, for which `batch` are kept free.
    batch: most tokens of the file with the gap. The prefix gets three quarters of them, the suffix
    one, and each what the other leaves.

    The prompt and n_predict tokens fit n_ctx. Only an answer of more than three quarters of n_ctx
    may meet the end of the context instead: there would be no room to ask for it.
    """

    n_ctx: int
    n_predict: int
    batch: int = 512

    @property
    def gap(self) -> int:
        """Tokens for the file with the gap."""
        return min(self.batch, self.n_ctx - self._answer)

    @property
    def others(self) -> int:
        """Tokens for all that stands before it."""
        return max(0, self.n_ctx - max(self.batch, _FRAME) - 2 * self._answer)

    @property
    def _answer(self) -> int:
        wanted = self.n_predict if self.n_predict >= 0 else self.batch
        return min(wanted, self.n_ctx * 3 // 4)


@dataclass(frozen=True, slots=True)
class Fim:
    """What a loaded model knows of filling in the middle.

    prefix, suffix, middle: the tokens before each part; middle is None where there is none.
    repo, file: the tokens before the name of the repository and before the path of each file.
    mark: text before a path, for models that have no token for it.
    after_repo: text between the name of the repository and the first file.
    path_inside: the path of the file with the gap is the beginning of its prefix.
    needs_bos: it must be there even if the model file does not ask for it.
    stop_tokens: end an answer and are no part of it. stop_strings: the same, for what has no token.
    """

    family: str
    order: Order
    prefix: int
    suffix: int
    middle: int | None
    repo: int | None = None
    file: int | None = None
    mark: str = ""
    after_repo: str = ""
    path_inside: bool = False
    needs_bos: bool = False
    stop_tokens: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()

    def tokens(self, tokenizer: Tokenizer, gap: Gap, room: Room | None = None) -> list[int]:
        """The prompt whose continuation fills the gap.

        room: what does not fit is left out: the beginning of the prefix, the end of the suffix and
        the first of the other files. None: everything is kept.
        """
        if room is not None:
            gap = _shortened(gap, room, tokenizer.longest_piece)
        write = _Writer(tokenizer, self._controls())
        bos = [tokenizer.bos] if self._begins(tokenizer) else []
        middle = [] if self.middle is None else [self.middle]
        # A tokenizer that puts a space in front of texts did so here in training as well.
        before, after = write(gap.prefix + gap.prompt, joined=False), write(gap.suffix)
        others, path = self._others(write, gap, room)
        if room is not None:
            before, after = _fit(before, after, room.gap - len(bos) - 2 - len(middle))
        if self.path_inside:
            before, path = path[1:] + before, path[:1]
        parts = [[self.prefix, *before], [self.suffix, *after]]
        first, second = parts if self.order == "PSM" else reversed(parts)
        return [*others, *path, *bos, *first, *second, *middle]

    def _begins(self, tokenizer: Tokenizer) -> bool:
        return tokenizer.bos >= 0 and (self.needs_bos or tokenizer.adds_bos)

    def _controls(self) -> frozenset[int]:
        own = (self.prefix, self.suffix, self.middle, self.repo, self.file)
        return self.stop_tokens.union(token for token in own if token is not None)

    def _others(self, write: _Writer, gap: Gap, room: Room | None) -> tuple[list[int], list[int]]:
        """What stands before the file with the gap, and the path of that one."""
        head: list[int] = []
        path: list[int] = []
        if not (gap.extra or gap.repo or gap.filename):
            return head, path
        if self.repo is not None:
            head = [self.repo, *write((gap.repo or _REPO) + self.after_repo)]
        if self.file is not None or self.mark:
            path = self._path(write, gap.filename or _FILE)
        left = None
        if room is not None:
            path = path if len(path) <= room.others else []
            head = head if len(head) <= room.others - len(path) else []
            left = room.others - len(path) - len(head)
        return head + self._files(write, gap.extra, left), path

    def _files(self, write: _Writer, extra: Sequence[ExtraFile], left: int | None) -> list[int]:
        """The last of the files, and the end of the first of these: at most `left` tokens."""
        blocks: list[list[int]] = []
        for text, filename in reversed(extra):
            path = self._path(write, filename or _EXTRA)
            body = write(text + "\n" if self.mark and not text.endswith("\n") else text)
            if left is not None:
                most = left - len(path)
                if most < 1:
                    break
                body = body[max(0, len(body) - most) :]
                left = most - len(body)
            blocks.append(path + body)
        return [token for block in reversed(blocks) for token in block]

    def _path(self, write: _Writer, filename: str) -> list[int]:
        """What stands before the text of a file."""
        if self.file is not None:
            return [self.file, *write(filename + "\n")]
        return write(f"{self.mark}{filename}\n" if self.mark else _SNIPPET)


class _Writer:
    """Turns text from outside into tokens, none of which is a control token."""

    def __init__(self, tokenizer: Tokenizer, controls: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._controls = controls
        probe = self._plain("x")
        self._adds_space = bool(probe) and tokenizer.piece(probe[0]).startswith(b" ")

    def __call__(self, text: str, *, joined: bool = True) -> list[int]:
        """joined: other tokens stand before it, so that no space may be put in front."""
        tokens = self._joined(text) if joined else self._plain(text)
        if self._controls.isdisjoint(tokens):
            return tokens
        # llama.cpp reads user-defined tokens in any text, and many files call theirs so.
        return [part for token in tokens for part in self._spelled(token)]

    def _spelled(self, token: int) -> list[int]:
        """A control token as the letters of its name."""
        if token not in self._controls:
            return [token]
        name = self._tokenizer.name(token)
        letters = [*self._joined(name[:1]), *self._joined(name[1:])]
        return [letter for letter in letters if letter not in self._controls]

    def _joined(self, text: str) -> list[int]:
        if not self._adds_space:
            return self._plain(text)
        # The space goes to a sign that merges with nothing, and away with it.
        sign = self._plain("☺")
        tokens = self._plain("☺" + text)
        return tokens[len(sign) :] if tokens[: len(sign)] == sign else self._plain(text)

    def _plain(self, text: str) -> list[int]:
        return self._tokenizer.tokenize(text, add_special=False, parse_special=False)


def _shortened(gap: Gap, room: Room, longest: int) -> Gap:
    """The gap without text that cannot fit, so that a large file takes no time.

    longest: characters that one token can stand for.
    """
    here, there = max(1, room.gap * longest), max(1, room.others * longest)
    return gap._replace(
        prefix=_end(gap.prefix + gap.prompt, here),
        prompt="",
        suffix=gap.suffix[:here],
        extra=[one._replace(text=_end(one.text, there)) for one in gap.extra],
    )


def _end(text: str, most: int) -> str:
    """The last `most` characters or up to twice as many: a text that grows is cut in steps."""
    return text[max(0, len(text) // most - 1) * most :]


def _fit(before: list[int], after: list[int], most: int) -> tuple[list[int], list[int]]:
    """The end of `before` and the beginning of `after`: together at most `most` tokens."""
    most = max(0, most)
    for_prefix = most - min(len(after), most // 4)
    for_suffix = most - min(len(before), for_prefix)
    excess = max(0, len(before) - for_prefix)
    # In steps: while the user types, the prompt keeps its beginning, and with it the cache.
    step = _CUT if for_prefix > 4 * _CUT else 1
    return before[-(-excess // step) * step :], after[:for_suffix]
