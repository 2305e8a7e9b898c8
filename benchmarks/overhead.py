"""Plain decoding through Engine against a bare llama.cpp loop on the same file.

    python -m benchmarks.overhead [--target Q4_1] [--runs 5]

The bare loop calls llama_decode on one token and takes numpy's argmax of the logits; nothing
else. Both are run by turns in one process, and the medians compared: budget >= 0.97.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import llama_cpp
import numpy as np

import edgespec
from benchmarks.lossless import file_of
from edgespec.catalog.hardware import physical_cores
from edgespec.llama import library
from edgespec.llama.model import Model

MESSAGES = [{"role": "user", "content": "Write a long story about a river and its mountains."}]


class BareLoop:
    """The least a greedy llama.cpp program does, over the ctypes API."""

    def __init__(self, model: Model, n_ctx: int) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_threads = params.n_threads_batch = physical_cores()
        params.no_perf = True
        self._context = llama_cpp.llama_init_from_model(model.handle, params)
        self._n_vocab = model.vocabulary.size

    def run(self, prompt: list[int], count: int) -> tuple[list[int], float]:
        """Greedy tokens after the prompt, and the seconds of all but the first."""
        memory = llama_cpp.llama_get_memory(self._context)
        llama_cpp.llama_memory_clear(memory, True)
        array = (llama_cpp.llama_token * len(prompt))(*prompt)
        self._decode(llama_cpp.llama_batch_get_one(array, len(prompt)))
        one = (llama_cpp.llama_token * 1)()
        batch = llama_cpp.llama_batch_get_one(one, 1)
        tokens = [self._best()]
        began = time.perf_counter()
        while len(tokens) < count:
            one[0] = tokens[-1]
            self._decode(batch)
            tokens.append(self._best())
        return tokens, time.perf_counter() - began

    def _decode(self, batch: llama_cpp.llama_batch) -> None:
        if llama_cpp.llama_decode(self._context, batch) != 0:
            raise RuntimeError("llama_decode failed")

    def _best(self) -> int:
        pointer = llama_cpp.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(pointer, (self._n_vocab,)).argmax())

    def close(self) -> None:
        llama_cpp.llama_free(self._context)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="Q4_1")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    chosen = parser.parse_args()
    path = file_of(chosen.target)
    library.start()
    ratios, bare_s, engine_s = [], [], []
    with edgespec.load(target=path, num_draft_tokens=0, exact="off") as engine:
        model = Model(path)
        bare = BareLoop(model, engine.info.n_ctx)
        prompt = engine.tokenize(None, MESSAGES)
        bare.run(prompt, 16)
        for run in range(chosen.runs):
            order = ("bare", "engine") if run % 2 else ("engine", "bare")
            for who in order:
                if who == "bare":
                    expected, seconds = bare.run(prompt, chosen.tokens)
                    bare_s.append(seconds / (chosen.tokens - 1))
                else:
                    done = engine.generate(
                        messages=MESSAGES, max_tokens=chosen.tokens, temperature=0
                    )
                    wall = done.total_s - done.time_to_first_token_s
                    engine_s.append(wall / (len(done.tokens) - 1))
            # Two contexts may differ in a last bit; equal lengths are what matters here.
            assert len(done.tokens) == len(expected), "the answer ended early: other prompt"
            ratios.append(bare_s[-1] / engine_s[-1])
            print(
                f"bare {bare_s[-1] * 1e3:.2f} ms/token, engine {engine_s[-1] * 1e3:.2f}, "
                f"ratio {ratios[-1]:.3f}, same tokens: {list(done.tokens) == expected}"
            )
        bare.close()
        model.close()
    print(
        f"median bare {median(bare_s) * 1e3:.2f} ms, engine {median(engine_s) * 1e3:.2f} ms: "
        f"engine runs at {median(bare_s) / median(engine_s):.3f}x (budget 0.97), "
        f"median of ratios {median(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
