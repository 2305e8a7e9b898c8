"""What a model's file says of its text: the chat template, and how to fill in the middle."""

from __future__ import annotations

from edgespec.errors import TemplateError
from edgespec.llama.model import Model
from edgespec.text.fim import Fim
from edgespec.text.fim_families import KEYS, find_fim
from edgespec.text.template import ChatTemplate, require_template


def fill_in(model: Model) -> Fim | str:
    """How it fills in the middle of a text, or why it cannot."""
    metadata = {key: model.metadata(key) for key in KEYS}
    name = model.metadata("general.name") or model.path.name
    return find_fim(model.vocabulary, metadata, name)


def chat_template(model: Model) -> ChatTemplate | TemplateError:
    """A broken or missing template only matters to those who chat."""
    vocabulary = model.vocabulary
    try:
        source = require_template(model.chat_template, model.path.name)
        return ChatTemplate(
            source,
            bos=vocabulary.name(vocabulary.bos) if vocabulary.bos >= 0 else "",
            eos=vocabulary.name(vocabulary.eos) if vocabulary.eos >= 0 else "",
        )
    except TemplateError as error:
        return error
