"""Text, chats and tokens to the tokens of a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgespec.errors import ContextFullError, OptionError, TemplateError
from edgespec.protocols import Tokenizer
from edgespec.requests import Messages, Prompt
from edgespec.text.template import ChatTemplate


class Prompts:
    """Makes the prompts of one model, whose context holds `n_ctx` tokens.

    template: or why there is none. The tokenizer must not be freed meanwhile.
    """

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate | TemplateError, n_ctx: int
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._n_ctx = n_ctx
        # More characters are more than n_ctx tokens, whatever they are.
        self._most_characters = n_ctx * max(tokenizer.longest_piece, 1)

    @property
    def has_template(self) -> bool:
        """Whether chats can be rendered."""
        return isinstance(self._template, ChatTemplate)

    def tokens(
        self, prompt: Prompt | None, messages: Messages | None, options: Mapping[str, Any]
    ) -> list[int]:
        """Of a prompt or of a chat. options: for the template.

        Raises OptionError, TemplateError, and ContextFullError for what is too long to be worth
        counting.
        """
        if (prompt is None) == (messages is None):
            raise OptionError("Give either a prompt or messages.")
        if prompt is None:
            tokens = self._of_text(self.render(messages or (), options), rendered=True)
        elif isinstance(prompt, str):
            tokens = self._of_text(prompt, rendered=False)
        else:
            tokens = self._checked(prompt)
        if not tokens:
            raise OptionError("The prompt is empty: there is nothing to continue.")
        return tokens

    def render(self, messages: Messages, options: Mapping[str, Any]) -> str:
        """The text of a chat. Raises OptionError and TemplateError."""
        if isinstance(self._template, TemplateError):
            raise TemplateError(*self._template.args)
        if not messages:
            raise OptionError("There are no messages: give at least one of the user.")
        return self._template.render(messages, **options)

    def predicted(self, text: str) -> tuple[int, ...]:
        """The tokens of an answer that is expected; what is longer than any cannot be right."""
        text = text[: self._most_characters]
        return tuple(self._tokenizer.tokenize(text, add_special=False, parse_special=False))

    def encoded(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """The tokens of a text, as the caller wants it read. add_special: add BOS and EOS as the
        model asks, but not before a text that begins with BOS. parse_special: read control tokens.

        Raises ContextFullError for what is too long to be worth counting.
        """
        self.check_length(text)
        bos = self._tokenizer.name(self._tokenizer.bos)
        add = add_special and not (parse_special and bos and text.startswith(bos))
        return self._tokenizer.tokenize(text, add_special=add, parse_special=parse_special)

    def check_length(self, text: str) -> None:
        """Raise ContextFullError for a text that cannot fit, however it is read."""
        if len(text) > self._most_characters:
            raise too_long(None, self._n_ctx)

    def piece(self, token: int, *, special: bool) -> bytes:
        """The bytes a token adds to a text. special: a control token adds its name. Raises
        OptionError."""
        self._check_ids([token])
        piece = self._tokenizer.piece(token)
        return piece if piece or not special else self._tokenizer.name(token).encode()

    def _of_text(self, text: str, *, rendered: bool) -> list[int]:
        self.check_length(text)
        if not rendered:
            return self._tokenizer.tokenize(text, add_special=True, parse_special=False)
        bos = self._tokenizer.name(self._tokenizer.bos)
        add = self._tokenizer.adds_bos and not text.startswith(bos)
        return self._tokenizer.tokenize(text, add_special=add, parse_special=True)

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        if not isinstance(tokens, Sequence) or isinstance(tokens, bytes):
            raise OptionError(
                f"A prompt is text or a list of token ids, not {type(tokens).__name__}."
            )
        for one in tokens:
            if type(one) is not int:
                raise OptionError(f"A prompt is text or a list of token ids, not of {one!r:.50}.")
        self._check_ids(tokens)
        return list(tokens)

    def _check_ids(self, tokens: Sequence[int]) -> None:
        if not all(0 <= token < self._tokenizer.size for token in tokens):
            raise OptionError(f"There is a token id outside 0 to {self._tokenizer.size - 1}.")


def too_long(tokens: int | None, n_ctx: int) -> ContextFullError:
    """The error for a prompt of so many tokens; None: too many to be worth counting."""
    count = "more tokens than are worth counting" if tokens is None else f"{tokens} tokens"
    return ContextFullError(
        f"The prompt has {count} but the context holds {n_ctx}: "
        "shorten it or load with a larger context (--ctx).",
        tokens,
        n_ctx,
    )
