"""What the server did so far, for Prometheus."""

from __future__ import annotations

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from edgespec.server.admission import Admission
from edgespec.types import Completion

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self, admission: Admission) -> None:
        self._registry = CollectorRegistry()
        self._prompt = self._counter(
            "prompt_tokens", "Tokens of prompts, by how they were had", "how"
        )
        self._answer = self._counter(
            "completion_tokens", "Tokens of answers, by who proposed them", "source"
        )
        self._drafted = self._counter("drafted_tokens", "Tokens drafted, by drafter", "drafter")
        self._accepted = self._counter(
            "accepted_tokens", "Drafted tokens that stood, by drafter", "drafter"
        )
        self._seconds = self._counter("engine_seconds", "Seconds of the engine, by work", "work")
        self._steps = Counter(
            "edgespec_decode_steps", "Target passes for answers", registry=self._registry
        )
        self._answers = self._counter("answers", "Answers, by how they ended", "finish_reason")
        self._first = Histogram(
            "edgespec_time_to_first_token_seconds",
            "From the request to its first token, waiting included",
            buckets=_SECONDS,
            registry=self._registry,
        )
        for name, what, value in (
            ("running", "Answers in the making", lambda: admission.running),
            ("waiting", "Requests that wait", lambda: admission.waiting),
        ):
            gauge = Gauge(f"edgespec_requests_{name}", what, registry=self._registry)
            gauge.set_function(value)

    def _counter(self, name: str, what: str, label: str) -> Counter:
        return Counter(f"edgespec_{name}", what, [label], registry=self._registry)

    def count(self, completion: Completion) -> None:
        """One more answer, finished or cancelled."""
        usage, stats = completion.usage, completion.stats
        self._prompt.labels("cached").inc(usage.cached_tokens)
        self._prompt.labels("read").inc(stats.prefilled)
        for name, (drafted, accepted) in stats.by_drafter.items():
            self._drafted.labels(name).inc(drafted)
            self._accepted.labels(name).inc(accepted)
        sources = Tally(source for step in completion.steps for source in step.sources)
        for source, tokens in sources.items():
            self._answer.labels(source).inc(tokens)
        for work in ("prefill", "draft", "verify", "sample", "other"):
            self._seconds.labels(work).inc(max(0.0, getattr(stats, f"{work}_s")))
        self._steps.inc(stats.steps)
        self._answers.labels(completion.finish_reason).inc()
        if completion.tokens or completion.finish_reason != "cancelled":
            self._first.observe(completion.time_to_first_token_s)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)
