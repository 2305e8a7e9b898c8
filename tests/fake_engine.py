"""An engine on the fake model, whose passes can be held at a gate."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgespec.decoding.sampling import Sampler
from edgespec.decoding.scheduler import Scheduler
from edgespec.drafters.prediction import PredictionDrafter
from edgespec.engine import Engine, EngineInfo
from edgespec.errors import TemplateError
from edgespec.generation import Generation
from edgespec.policies import PREDICTION, Policies
from edgespec.protocols import Logits, Row
from edgespec.text.fim import Fim
from edgespec.text.template import ChatTemplate
from edgespec.types import Completion, SamplingParams
from tests.fakes import FakeDrafter, FakeModel, FakeTokenizer, Table, Ticks, hashed_logits
from tests.tiny_gguf import CHATML

V = FakeTokenizer.size
PATIENCE = 20.0  # seconds after which a test fails instead of hanging
PROMPT = "The quick brown fox"
WARM: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 5}


def readable(seed: int = 0, end: float = -100.0) -> Table:
    """Letters and spaces only; `end` is the logit of the end of generation."""
    table = hashed_logits(V, seed=seed)
    letters = [*range(ord("a"), ord("z") + 1), ord(" ")]

    def logits(tokens: Sequence[int]) -> Logits:
        row = np.full(V, -100.0, np.float32)
        row[letters] = table(tokens)[letters]
        row[FakeTokenizer.END] = end + table(tokens)[FakeTokenizer.END]
        return row

    return logits


class GatedModel(FakeModel):
    """Once `hold` is called, a pass lasts until it is let go or aborted."""

    def __init__(self, logits: Table, **options: Any) -> None:
        super().__init__(logits, V, **options)
        self._change = threading.Condition()
        self._held = False
        self._entered = 0
        self._turns = 0

    def decode(self, rows: Sequence[Row]) -> Logits:
        with self._change:
            self._entered += 1
            self._change.notify_all()
            assert self._change.wait_for(self._may_go, PATIENCE), "held for too long"
            self._turns -= self._held and not self.aborted
        return super().decode(rows)

    def _may_go(self) -> bool:
        return not self._held or self._turns > 0 or self.aborted

    def abort(self) -> None:
        with self._change:
            super().abort()
            self._change.notify_all()

    def hold(self) -> None:
        """Passes wait from now on."""
        with self._change:
            self._held, self._entered, self._turns = True, 0, 0

    def wait(self, passes: int = 1) -> None:
        """Until so many passes have begun since `hold`."""
        with self._change:
            assert self._change.wait_for(lambda: self._entered >= passes, PATIENCE)

    def let(self, passes: int) -> None:
        """Let so many passes through."""
        with self._change:
            self._turns += passes
            self._change.notify_all()

    def release(self) -> None:
        """Passes wait no more."""
        with self._change:
            self._held = False
            self._change.notify_all()


class Loaded:
    """An engine on the fake, and what it is made of."""

    def __init__(
        self,
        logits: Table | None = None,
        *,
        k: int = 0,
        exact: frozenset[int] | None = None,
        template: ChatTemplate | TemplateError | None = None,
        tokenizer: FakeTokenizer | None = None,
        fim: Fim | None = None,
        tick: float = 1.0,
        model: type[GatedModel] = GatedModel,
        **options: Any,
    ) -> None:
        table = logits or readable()
        self.model = model(table, **options)
        self.freed: list[str] = []

        def half(tokens: list[int], params: SamplingParams) -> int:
            right = Sampler(params).sample(table(tokens), tokens)
            return right if len(tokens) % 3 else (right + 1) % 256

        ticks = Ticks(tick)
        policies = Policies(drafters=("half",), drafter="half", k=k, widths=exact)
        self.engine = Engine(
            model=self.model,
            tokenizer=tokenizer or FakeTokenizer(),
            scheduler=Scheduler(
                self.model,
                {"half": FakeDrafter("half", half), PREDICTION: PredictionDrafter()},
                policies.usual,
                ticks,
            ),
            policies=policies,
            template=template or ChatTemplate(CHATML, bos="<s>", eos="</s>"),
            fim=fim or "The fake cannot fill in the middle.",
            info=EngineInfo(
                target="fake",
                draft="",
                drafter="half" if k else "",
                drafters=("half",),
                num_draft_tokens=k,
                n_ctx=self.model.n_ctx,
                threads=1,
                devices=(),
                exact_widths=exact,
            ),
            close=lambda: self.freed.append(threading.current_thread().name),
            clock=ticks,
        )

    def generate(self, prompt: str | None = PROMPT, **options: Any) -> Completion:
        return self.engine.generate(prompt, **{"max_tokens": 40, **WARM, **options})

    def submit(self, prompt: str | None = PROMPT, **options: Any) -> Generation:
        return self.engine.submit(prompt, **{"max_tokens": 40, **WARM, **options})
