"""Records of made-up benchmark runs with sane defaults, for the tests of the benchmark."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from edgespec.bench.records import (
    ALL,
    BASELINE,
    Cell,
    Conditions,
    Curve,
    Divergence,
    Interval,
    Machine,
    ModelFile,
    Result,
    Settings,
    Summary,
    Value,
    Worst,
)

GIB = 1024**3


def machine(**overrides: Any) -> Machine:
    """A laptop with 4 cores, 16 GiB and no GPU."""
    given: dict[str, Any] = {
        "os": "Linux 6.8",
        "cpu": "Example CPU 4000",
        "physical_cores": 4,
        "logical_cores": 8,
        "ram_bytes": 16 * GIB,
        "devices": ["Example CPU 4000"],
        "container": False,
        "governor": "performance",
        "python": "3.11.7",
        "edgespec": "0.1.0",
        "numpy": "2.4.6",
        "llama_cpp_python": "0.3.36",
        "llama_cpp_system_info": "AVX2 = 1",
    }
    return Machine(**{**given, **overrides})


def conditions(**overrides: Any) -> Conditions:
    """An idle, cool machine on mains."""
    given: dict[str, Any] = {
        "load_average": 0.2,
        "temperature_c": 45.0,
        "frequency_mhz": 3200.0,
        "on_battery": False,
        "swap_used_bytes": 0,
        "ram_available_bytes": 12 * GIB,
    }
    return Conditions(**{**given, **overrides})


def model_file(**overrides: Any) -> ModelFile:
    """A target of 1 GiB."""
    given: dict[str, Any] = {
        "name": "target-q4.gguf",
        "size_bytes": GIB,
        "sha256": "a" * 64,
        "description": "llama 1B Q4_K - Medium",
        "parameters": 1_000_000_000,
        "n_ctx_train": 8192,
        "vocabulary": 49152,
    }
    return ModelFile(**{**given, **overrides})


def draft_file(**overrides: Any) -> ModelFile:
    """A draft model of 128 MiB."""
    given: dict[str, Any] = {
        "name": "draft-q4.gguf",
        "size_bytes": GIB // 8,
        "sha256": "b" * 64,
        "description": "llama 135M Q4_0",
        "parameters": 135_000_000,
    }
    return model_file(**{**given, **overrides})


def settings(**overrides: Any) -> Settings:
    """The defaults: off and auto, once each, greedily."""
    given: dict[str, Any] = {
        "suite": "standard",
        "suite_sha256": "c" * 64,
        "prompts": 12,
        "modes": ["off", "auto"],
        "repetitions": 1,
        "max_tokens": 128,
        "temperature": 0.0,
        "seed": 1,
        "n_ctx": 4096,
        "threads": 4,
        "gpu_layers": None,
        "exact": "auto",
        "exact_widths": [1, 2, 3, 4],
        "kv_cache": "F16/F16",
        "repacked": False,
        "cooldown_s": 0.0,
        "budget_s": None,
        "precision": None,
        "watts": None,
        "price_kwh": None,
        "hardware_price": None,
        "hardware_years": None,
    }
    return Settings(**{**given, **overrides})


def curve(**overrides: Any) -> Curve:
    """T(1) is 0.1 s; every further token costs 0.01 s."""
    widths = overrides.get("widths", [1, 2, 3, 4, 5, 8])
    given: dict[str, Any] = {
        "depth": 256,
        "widths": widths,
        "seconds": [0.09 + 0.01 * n for n in widths],
        "spread": [0.001] * len(widths),
    }
    return Curve(**{**given, **overrides})


def cell(**overrides: Any) -> Cell:
    """Plain decoding of 65 tokens at 10 tokens/s; what can be derived follows the overrides.

    An override of `seconds_per_token` sets decode_s.
    """
    completion = overrides.get("completion_tokens", 65)
    decoded = max(0, completion - overrides.get("turns", 1))
    decode_s = overrides.get("decode_s", overrides.pop("seconds_per_token", 0.1) * decoded)
    ttft_s = overrides.get("ttft_s", 0.5)
    steps = overrides.get("steps", decoded)
    given: dict[str, Any] = {
        "question_id": "chat-1",
        "category": "chat",
        "mode": BASELINE,
        "repetition": 0,
        "order": 0,
        "turns": 1,
        "prompt_tokens": 100,
        "cached_tokens": 0,
        "completion_tokens": completion,
        "finish_reason": "stop",
        "ttft_s": ttft_s,
        "prefill_s": 0.4,
        "decode_s": decode_s,
        "e2e_s": ttft_s + decode_s,
        "itl_p50_s": decode_s / decoded if decoded else None,
        "itl_p95_s": decode_s / decoded if decoded >= 20 else None,
        "steps": steps,
        "drafted": sum(overrides.get("per_step_drafted", [])),
        "accepted": sum(overrides.get("per_step_accepted", [])),
        "draft_s": 0.0,
        "verify_s": decode_s * 0.9,
        "sample_s": decode_s * 0.06,
        "other_s": decode_s * 0.04,
        "per_step_drafted": [0] * steps,
        "per_step_accepted": [0] * steps,
        "by_drafter": {},
        "trace_s": decode_s,
        "token_sha256": "d" * 64,
        "divergence": None,
        "loop_share": 0.0,
        "rss_bytes": GIB,
        "energy_j": None,
        "conditions": conditions(),
        "error": None,
    }
    return Cell(**{**given, **overrides})


def drafting_cell(**overrides: Any) -> Cell:
    """The same 65 tokens in mode auto at 16 tokens/s: 20 steps with k 4, 44 of 80 accepted."""
    drafted = overrides.get("per_step_drafted", [4] * 20)
    accepted = overrides.get("per_step_accepted", [4, 0, 3, 2, 2] * 4)
    completion = overrides.get("completion_tokens", 65)
    decoded = max(0, completion - overrides.get("turns", 1))
    decode_s = overrides.get("decode_s", overrides.pop("seconds_per_token", 0.0625) * decoded)
    given: dict[str, Any] = {
        "mode": "auto",
        "order": 1,
        "decode_s": decode_s,
        "steps": len(drafted),
        "per_step_drafted": drafted,
        "per_step_accepted": accepted,
        "by_drafter": {"model": (sum(drafted), sum(accepted))},
        "draft_s": decode_s * 0.2,
        "verify_s": decode_s * 0.7,
        "sample_s": decode_s * 0.06,
        "other_s": decode_s * 0.04,
    }
    return cell(**{**given, **overrides})


def failed_cell(**overrides: Any) -> Cell:
    """A cell that failed: nothing was counted."""
    names = ("prompt_tokens", "completion_tokens", "ttft_s", "prefill_s", "decode_s", "e2e_s")
    given: dict[str, Any] = dict.fromkeys(names, 0)
    given |= {"trace_s": None, "finish_reason": "", "error": "the model's memory ran out"}
    return cell(**{**given, **overrides})


def divergence(**overrides: Any) -> Divergence:
    """A near-tie at token 17."""
    given: dict[str, Any] = {"at": 17, "gap": 0.1, "tau": 0.5, "kind": "near-tie"}
    return Divergence(**{**given, **overrides})


def interval(value: float = 1.5, low: float | None = None, high: float | None = None) -> Interval:
    """`value` with 5 % to either side."""
    low = value * 0.95 if low is None else low
    return Interval(value=value, low=low, high=value * 1.05 if high is None else high)


def summary(**overrides: Any) -> Summary:
    """Of mode auto over 12 prompts: 1.6x."""
    given: dict[str, Any] = {
        "mode": "auto",
        "category": ALL,
        "prompts": 12,
        "failed": 0,
        "decode_tps": 16.0,
        "e2e_tps": 14.0,
        "ttft_s": 0.5,
        "prefill_tps": 250.0,
        "speedup": interval(1.6),
        "e2e_speedup": interval(1.5),
        "trace_speedup": 1.62,
        "ttft_ratio": 1.02,
        "verdict": "faster",
        "win_rate": 0.75,
        "worst": Worst(question_id="chat-2", speedup=0.93),
        "acceptance_rate": 0.55,
        "mean_acceptance_length": 3.2,
        "by_drafter": {"model": (960, 528)},
        "acceptance_by_position": [0.8, 0.75, 0.33, 1.0],
        "drafted_lengths": {"0": 40, "4": 240},
        "k_p10": 0.0,
        "k_median": 4.0,
        "k_p90": 4.0,
        "draft_share": 0.2,
        "verify_share": 0.7,
        "sample_share": 0.06,
        "other_share": 0.04,
        "joules_per_token": None,
        "differing": 0,
        "near_ties": 0,
    }
    return Summary(**{**given, **overrides})


def baseline_summary(**overrides: Any) -> Summary:
    """Of plain decoding over 12 prompts: nothing relative to the baseline, nothing drafted."""
    given: dict[str, Any] = dict.fromkeys(
        ("speedup", "e2e_speedup", "trace_speedup", "ttft_ratio", "verdict", "win_rate", "worst")
    )
    given |= {
        "mode": BASELINE,
        "decode_tps": 10.0,
        "e2e_tps": 9.4,
        "acceptance_rate": None,
        "mean_acceptance_length": 1.0,
        "by_drafter": {},
        "acceptance_by_position": [],
        "drafted_lengths": {"0": 768},
        "k_p10": 0.0,
        "k_median": 0.0,
        "k_p90": 0.0,
        "draft_share": 0.0,
        "verify_share": 0.9,
    }
    return summary(**{**given, **overrides})


def value(**overrides: Any) -> Value:
    """2.4 s of 6.9 s saved per task; no energy, no prices."""
    given: dict[str, Any] = {
        "mode": "auto",
        "tasks": 6,
        "baseline_task_s": 6.9,
        "task_s": 4.5,
        "saved_per_task_s": Interval(value=2.4, low=2.2, high=2.6),
        "saved_per_100_tasks_s": 240.0,
        "tokens_per_core_s": 3.6,
        "baseline_tokens_per_core_s": 2.36,
        "tokens_per_joule": None,
        "baseline_tokens_per_joule": None,
        "cost_per_million": None,
        "baseline_cost_per_million": None,
        "draft_bytes": GIB // 8,
        "assumptions": ["The tasks are the 6 prompts of the categories code-write."],
    }
    return Value(**{**given, **overrides})


def cells(
    categories: Sequence[str] = ("code-write", "chat"), prompts: int = 6, **overrides: Any
) -> list[Cell]:
    """Every prompt in modes off and auto, in mirrored order; auto is 1.6 times as fast."""
    made: list[Cell] = []
    for category in categories:
        for number in range(1, prompts + 1):
            question_id = f"{category}-{number}"
            pair = [cell, drafting_cell] if number % 2 else [drafting_cell, cell]
            for make in pair:
                named = {"question_id": question_id, "category": category, "order": len(made)}
                sha256 = hashlib.sha256(question_id.encode()).hexdigest()
                made.append(make(**{**named, "token_sha256": sha256, **overrides}))
    return made


def result(**overrides: Any) -> Result:
    """A finished, comparable run of 12 prompts in two categories."""
    categories = ("code-write", "chat")
    given: dict[str, Any] = {
        "created": "2025-01-31T12:00:00+01:00",
        "command": ["edgespec", "bench"],
        "stopped_by": None,
        "machine": machine(),
        "conditions_start": conditions(),
        "conditions_end": conditions(temperature_c=62.0),
        "target": model_file(),
        "draft": draft_file(),
        "settings": settings(),
        "target_curve": curve(),
        "draft_curve": curve(depth=256, seconds=[0.01] * 6, spread=[0.0002] * 6),
        "cells": cells(categories),
        "skipped": [],
        "summaries": [
            make(category=category, prompts=12 if category == ALL else 6)
            for make in (baseline_summary, summary)
            for category in (ALL, *categories)
        ],
        "values": [value()],
        "comparable": True,
        "not_comparable": [],
        "notes": [],
        "verdict": "auto decodes at 1.60x [1.52, 1.68] of plain speed; it pays for code-write.",
    }
    return Result(**{**given, **overrides})
