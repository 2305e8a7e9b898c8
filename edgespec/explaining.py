"""Why drafts were chosen as they were, in numbers: costs, chances, lengths, what probing took,
and how any fixed choice would have fared on the same answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgespec.decoding.acceptance import kind_of_copy, kind_of_model
from edgespec.decoding.knowledge import KINDS, Knowledge
from edgespec.decoding.policy import Fixed
from edgespec.drafters.ngram import NgramDrafter
from edgespec.types import SamplingParams, Step

_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32)
_DRAFT_WIDTHS = (1, 2, 4, 8, 32)
_LENGTHS = (1, 2, 3, 4, 5, 6, 7)
_OBSERVED = 3.0  # fewer observations tell nothing
_AS_IT_WENT = "adaptive"


@dataclass(frozen=True, slots=True)
class Chance:
    """How often tokens with evidence of this kind stood. observations: as far as remembered."""

    drafter: str
    kind: str
    stood: float
    observations: float


@dataclass(frozen=True, slots=True)
class Asking:
    """What asking the draft model is worth in situations of this kind, in tokens a step: a guess
    where it was not asked. times: since it was loaded."""

    situation: str
    value: float
    times: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """passes, draft_passes: rows -> seconds, as of now. lengths: drafter -> tokens verified in
    one step -> steps. choices: what would have been decided for good -> seconds of decoding on
    these costs; those of a draft model are estimates from its acceptance here."""

    depth: int
    passes: Mapping[int, float]
    draft_passes: Mapping[int, float]
    machine_factor: float
    chances: tuple[Chance, ...]
    askings: tuple[Asking, ...]
    lengths: Mapping[str, Mapping[int, int]]
    probing_s: float
    decoding_s: float
    choices: Mapping[str, float]

    @property
    def regret(self) -> float | None:
        """Seconds of the adaptive policy over those of the best fixed choice, less 1."""
        fixed = [seconds for name, seconds in self.choices.items() if name != _AS_IT_WENT]
        if not fixed or _AS_IT_WENT not in self.choices:
            return None
        return self.choices[_AS_IT_WENT] / min(fixed) - 1.0


def explain(
    knowledge: Knowledge,
    widths: frozenset[int] | None,
    steps: Sequence[Step],
    prompt: Sequence[int],
) -> Explanation:
    """Explain the drafts of one answer to `prompt`; `widths` as for the policies."""
    decoding = [step for step in steps if not step.prefilled]
    depth = sum(step.position for step in decoding) // len(decoding) if decoding else 0
    allowed = [n for n in _WIDTHS if widths is None or n in widths]
    draft = knowledge.draft
    lengths: dict[str, Counter[int]] = {}
    for step in decoding:
        lengths.setdefault(step.drafter or "plain", Counter())[step.drafted] += 1
    return Explanation(
        depth=depth,
        passes={n: knowledge.target.at(n, depth) for n in allowed},
        draft_passes={n: draft.at(n, depth) for n in _DRAFT_WIDTHS} if draft else {},
        machine_factor=knowledge.target.factor,
        chances=tuple(_chances(knowledge)),
        askings=tuple(_askings(knowledge)),
        lengths={name: dict(sorted(count.items())) for name, count in sorted(lengths.items())},
        probing_s=knowledge.probing_s,
        decoding_s=knowledge.decoding_s,
        choices=_choices(knowledge, widths, decoding, prompt, steps) if decoding else {},
    )


def _chances(knowledge: Knowledge) -> list[Chance]:
    found = []
    for name, acceptance, copies in knowledge.drafters():
        describe = kind_of_copy if copies else kind_of_model
        found += [
            Chance(name, describe(kind), stood, observed)
            for kind, stood, observed in acceptance.table()
            if observed >= _OBSERVED
        ]
    return found


def _askings(knowledge: Knowledge) -> list[Asking]:
    if knowledge.draft is None:
        return []
    return [Asking(situation, *knowledge.asked(kind)) for kind, situation in enumerate(KINDS)]


def _choices(
    knowledge: Knowledge,
    widths: frozenset[int] | None,
    decoding: Sequence[Step],
    prompt: Sequence[int],
    steps: Sequence[Step],
) -> dict[str, float]:
    answer = [token for step in steps for token in step.tokens]
    # The token that ends reading the prompt; a prompt of one token is not read.
    first = sum(len(step.tokens) for step in steps if step.prefilled)

    def target_s(rows: int, at: int) -> float:
        return knowledge.target.at(rows, at)

    went = sum(target_s(step.rows, step.position) for step in decoding)
    if knowledge.draft is not None:
        went += sum(knowledge.drafting(step.draft_passes, step.position) for step in decoding)
    choices = {_AS_IT_WENT: went}
    ks = [0, *(k for k in _LENGTHS if widths is None or k + 1 in widths)]
    for k in ks:
        choices[f"n-gram {k}" if k else "plain"] = _copying_s(knowledge, prompt, answer, first, k)
    accepted = [step for step in decoding if "model" in step.drafter]
    if knowledge.draft is not None and accepted:
        rate = sum(s.accepted for s in accepted) / sum(s.drafted for s in accepted)
        depth = sum(step.position for step in decoding) / len(decoding)
        for k in ks[1:]:
            tokens = sum(rate**i for i in range(k + 1))
            step_s = target_s(k + 1, int(depth)) + knowledge.drafting([2] + [1] * (k - 1), depth)
            choices[f"model {k}, estimated"] = (len(answer) - first) / tokens * step_s
    return choices


def _copying_s(
    knowledge: Knowledge, prompt: Sequence[int], answer: Sequence[int], first: int, k: int
) -> float:
    """Seconds of decoding all but the `first` tokens of the answer with n-gram drafts of k
    tokens: they follow from the text."""
    drafter, policy = NgramDrafter(), Fixed(k, "n-gram")
    drafter.begin(0, [*prompt, *answer[:first]], SamplingParams(seed=0))
    at, seconds = first, 0.0
    while at < len(answer):
        plan = policy.plan({0: len(answer) - at - 1}, {"n-gram": drafter}, 0)[0]
        guess = plan.draft.tokens
        stood = 0
        while stood < len(guess) and guess[stood] == answer[at + stood]:
            stood += 1
        seconds += knowledge.target.at(1 + len(guess), len(prompt) + at)
        drafter.observe(0, answer[at : at + stood + 1])
        at += stood + 1
    return seconds
