"""What a benchmark run writes down. The JSON schema of a result is made from these classes.

Seconds are seconds, sizes are bytes, temperatures are degrees Celsius; None means unknown.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1

ALL = "all"
"""The name of the summary over all categories."""

BASELINE = "off"
"""The mode that speed-ups are relative to: plain decoding by edgespec."""

StoppedBy = Literal["ctrl-c", "budget", "precision"]
Verdict = Literal["faster", "slower", "same", "not enough data"]


class Record(BaseModel):
    """Frozen; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Machine(Record):
    """What ran the benchmark."""

    os: str
    cpu: str
    physical_cores: int
    logical_cores: int
    ram_bytes: int
    devices: list[str]
    container: bool
    governor: str | None = Field(description="Linux's frequency governor")
    python: str
    edgespec: str
    numpy: str
    llama_cpp_python: str
    llama_cpp_system_info: str


class Conditions(Record):
    """How hot, busy and fast the machine was at one moment."""

    load_average: float | None = Field(description="runnable processes, mean of a minute")
    temperature_c: float | None
    frequency_mhz: float | None
    on_battery: bool | None
    swap_used_bytes: int
    ram_available_bytes: int


class ModelFile(Record):
    """A GGUF file in use."""

    name: str
    size_bytes: int
    sha256: str = Field(description="of the first and last MiB and the size, not of the whole")
    description: str = Field(description="llama.cpp's: architecture, size, quantization")
    parameters: int
    n_ctx_train: int
    vocabulary: int


class Settings(Record):
    """Everything chosen by the user or by default."""

    suite: str
    suite_sha256: str
    prompts: int = Field(description="prompts in the suite, run or not")
    modes: list[str]
    repetitions: int
    max_tokens: int
    temperature: float
    seed: int
    n_ctx: int
    threads: int
    gpu_layers: int | None
    exact: str
    exact_widths: list[int] | None
    repacked: bool = Field(description="llama.cpp rearranged the target's weights")
    kv_cache: str = Field(description="types of the K and V halves")
    cooldown_s: float
    budget_s: float | None
    precision: float | None = Field(description="half width of the interval to stop at")
    watts: float | None
    price_kwh: float | None
    hardware_price: float | None
    hardware_years: float | None


class Curve(Record):
    """Seconds of one pass over n tokens of one sequence: medians, measured interleaved."""

    depth: int = Field(description="tokens in memory before the pass")
    widths: list[int]
    seconds: list[float]
    spread: list[float] = Field(description="interquartile range of the seconds, per width")
    growth: list[float] = Field(
        default_factory=list,
        description="seconds more for every token more in memory, per width; empty if unknown",
    )


class Divergence(Record):
    """Where an answer first differs from that of the baseline.

    gap: by how much one logit would have to change for the other token. tau: how much the gap
    between the two best logits changes when the same text is scored in passes as wide as those
    in use (99.9th percentile). A gap up to tau is a near-tie of the target, a larger one is not
    explained; both are None when they could not be measured.
    """

    at: int
    gap: float | None
    tau: float | None
    kind: Literal["near-tie", "unexplained", "unknown"]


class Cell(Record):
    """One prompt, run once in one mode. Of several turns, everything is the sum."""

    question_id: str
    category: str
    mode: str
    repetition: int
    order: int = Field(description="place in the run, from 0")
    turns: int
    prompt_tokens: int
    cached_tokens: int = Field(description="prompt tokens still in memory from an earlier turn")
    completion_tokens: int
    finish_reason: str = Field(description="of the last turn")
    ttft_s: float = Field(description="from asking to the first token, tokenization included")
    prefill_s: float = Field(description="the target's passes over the prompt")
    decode_s: float = Field(description="from the first token to the last, wall clock")
    e2e_s: float = Field(description="from asking to the last token, wall clock")
    itl_p50_s: float | None = Field(description="between tokens; they come in bursts")
    itl_p95_s: float | None = Field(description="None below 20 tokens")
    steps: int = Field(description="target passes while decoding, those without a draft included")
    drafted: int
    accepted: int
    draft_s: float
    verify_s: float
    sample_s: float
    other_s: float
    per_step_drafted: list[int]
    per_step_accepted: list[int]
    by_drafter: dict[str, tuple[int, int]] = Field(description="drafter: drafted, accepted")
    trace_s: float | None = Field(
        description="the seconds of decode_s that the measured cost curves predict for these steps"
    )
    token_sha256: str
    divergence: Divergence | None = Field(description="None when equal to the baseline's answer")
    loop_share: float = Field(description="share of the answer that repeats itself, 0..1")
    rss_bytes: int = Field(description="memory of the process afterwards")
    energy_j: float | None
    conditions: Conditions
    error: str | None = Field(description="why it failed; all counts are then 0")

    @property
    def decoded(self) -> int:
        """Tokens that came while decoding: the first of each turn belongs to the prompt."""
        return max(0, self.completion_tokens - self.turns)


class Skipped(Record):
    """A prompt that was not run."""

    question_id: str
    category: str
    reason: str


class Interval(Record):
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float


class Worst(Record):
    """The prompt a mode does worst on."""

    question_id: str
    speedup: float


class Summary(Record):
    """One mode on one category. Ratios are baseline / mode of seconds per token: above 1 is faster.

    Figures that cannot be had (nothing drafted, no baseline) are None.
    """

    mode: str
    category: str
    prompts: int
    failed: int
    decode_tps: float | None = Field(description="tokens per second, median over prompts")
    e2e_tps: float | None
    ttft_s: float | None
    prefill_tps: float | None
    speedup: Interval | None = Field(description="decoding, wall clock, geometric mean")
    e2e_speedup: Interval | None
    trace_speedup: float | None = Field(
        description="what the cost curves predict for the same steps, geometric mean"
    )
    ttft_ratio: float | None = Field(description="median of mode / baseline")
    verdict: Verdict | None
    win_rate: float | None = Field(description="share of prompts with a speed-up above 1")
    worst: Worst | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    by_drafter: dict[str, tuple[int, int]]
    acceptance_by_position: list[float | None] = Field(
        description="accepted / (reached and drafted), position 1 first"
    )
    drafted_lengths: dict[str, int] = Field(description="k: number of steps")
    k_p10: float | None
    k_median: float | None
    k_p90: float | None
    draft_share: float | None = Field(description="of the time of all steps")
    verify_share: float | None
    sample_share: float | None
    other_share: float | None
    joules_per_token: float | None
    differing: int = Field(description="answers that differ from the baseline's")
    near_ties: int = Field(description="of them, those explained by a near-tie of the target")


class Value(Record):
    """What a mode is worth, in time, energy and money; against the baseline on the same tasks."""

    mode: str
    tasks: int = Field(description="prompts of the code categories, all of them if there are none")
    baseline_task_s: float = Field(description="median seconds from asking to the last token")
    task_s: float
    saved_per_task_s: Interval = Field(description="mean, paired")
    saved_per_100_tasks_s: float
    tokens_per_core_s: float
    baseline_tokens_per_core_s: float
    tokens_per_joule: float | None
    baseline_tokens_per_joule: float | None
    cost_per_million: float | None = Field(description="in the currency of the prices given")
    baseline_cost_per_million: float | None
    draft_bytes: int
    assumptions: list[str]


class Result(Record):
    """A benchmark run."""

    schema_version: int = SCHEMA_VERSION
    created: str = Field(description="ISO 8601 with time zone")
    command: list[str]
    stopped_by: StoppedBy | None = Field(description="what ended the run early")
    machine: Machine
    conditions_start: Conditions
    conditions_end: Conditions
    target: ModelFile
    draft: ModelFile | None
    settings: Settings
    target_curve: Curve
    draft_curve: Curve | None
    cells: list[Cell]
    skipped: list[Skipped]
    summaries: list[Summary]
    values: list[Value]
    comparable: bool = Field(description="an unmodified suite with default settings")
    not_comparable: list[str] = Field(description="why not")
    notes: list[str] = Field(description="what makes the figures less sure")
    verdict: str = Field(description="one sentence")

    @property
    def finished(self) -> bool:
        """Whether all prompts were run, or skipped."""
        return self.stopped_by is None
