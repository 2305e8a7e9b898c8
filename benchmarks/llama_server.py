"""llama.cpp's own speculative decoding, setting by setting, on the files edgespec is measured on.

    python -m benchmarks.llama_server --server PATH --target Q8_0 --draft Q4_0

PATH is a llama-server, best built from the sources that llama-cpp-python vendors. Every setting
gets a server of its own, one at a time, all with the same files, threads, context, one slot, no
prompt cache and temperature 0; times are the server's own. Settings run in blocks, every second
repetition backwards, and plain first, in the middle and last: speed-ups are against the median
of the plain blocks, prompt by prompt, and their spread tells how far the machine drifted.
Tokens/step counts the bonus token, but not an answer's first token, which prefill gives.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

from benchmarks.lossless import file_of
from edgespec.bench.suite import load_suite, select
from edgespec.catalog.hardware import physical_cores
from edgespec.errors import BenchError

PLAIN = "plain"
SIMPLE = ("--spec-type", "draft-simple")
# The n-gram settings keep llama.cpp's own sizes. A chain asks its n-grams first.
SETTINGS: dict[str, tuple[str, ...]] = {
    PLAIN: ("--spec-type", "none"),
    **{
        f"draft n={n} p={p}": (*SIMPLE, "--spec-draft-n-max", str(n), "--spec-draft-p-min", p)
        for n in (1, 2, 3, 7)
        for p in ("0", "0.6")
    },
    "ngram-map-k": ("--spec-type", "ngram-map-k"),
    "ngram-mod": ("--spec-type", "ngram-mod"),
    "draft+ngram": ("--spec-type", "ngram-map-k,draft-simple", "--spec-draft-n-max", "3"),
}
WARM_UP = "Say hello."  # of no suite: ngram-mod remembers earlier requests


class ServerError(Exception):
    """The server did not start, died, or refused a request."""


class Row(NamedTuple):
    """One answer, with llama-server's own timings."""

    setting: str
    block: int
    question_id: str
    category: str
    text: str
    timings: dict[str, float]


class Results:
    """What was measured so far, and what went wrong."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.failed: dict[str, str] = {}
        self.fingerprint = ""

    def of(self, setting: str) -> list[Row]:
        return [row for row in self.rows if row.setting == setting]

    def rates(self, setting: str, block: int | None = None) -> dict[str, float]:
        """Median tokens per second by prompt, in one block or in all; without prefill."""
        found = defaultdict(list)
        for row in self.of(setting):
            rate = row.timings["predicted_per_second"]  # 0 when the answer is a single token
            if rate > 0 and block in (None, row.block):
                found[row.question_id].append(rate)
        return {prompt: median(rates) for prompt, rates in found.items()}

    def speedups(self, setting: str, block: int | None = None) -> dict[str, float]:
        """By prompt, against plain."""
        plain, rates = self.rates(PLAIN), self.rates(setting, block)
        return {prompt: rates[prompt] / plain[prompt] for prompt in rates if prompt in plain}

    def differing(self, setting: str) -> int:
        """Answers whose text is not that of the first plain block."""
        plain = {row.question_id: row.text for row in reversed(self.of(PLAIN))}
        return sum(row.text != plain.get(row.question_id) for row in self.of(setting))


@dataclass(frozen=True, slots=True)
class Server:
    """A running llama-server; `serving` starts and ends it."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int
    timeout: float

    def ask(self, text: str, max_tokens: int) -> Any:
        """The response to a chat of one message."""
        body: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
        body |= {"max_tokens": max_tokens, "temperature": 0, "cache_prompt": False}
        return self._request("/v1/chat/completions", self.timeout, body)

    def wait_until_healthy(self) -> None:
        deadline = time.monotonic() + self.timeout
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise self._failure(f"ended with code {self.process.returncode} at start")
            with contextlib.suppress(ServerError):
                self._request("/health", 1.0)
                return
            time.sleep(0.1)
        raise self._failure(f"was not ready after {self.timeout:g} s")

    def _request(self, path: str, timeout: float, body: dict[str, Any] | None = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None)
            response = connection.getresponse()
            said = response.read()
        except (OSError, HTTPException) as error:
            raise self._failure(f"gave no answer: {error}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise self._failure(f"answered {response.status}: {said.decode(errors='replace')}")
        return json.loads(said)

    def _failure(self, what: str) -> ServerError:
        lines = self.log.read_text("utf-8", "replace").splitlines()[-8:]
        return ServerError("\n    ".join([f"the server {what}; its last words:", *lines]))


@contextlib.contextmanager
def serving(command: Sequence[str], timeout: float) -> Iterator[Server]:
    """A healthy server on a free port of this machine; its process ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # A LLAMA_ARG_... of the user would change some settings and not others.
    clean = {name: value for name, value in os.environ.items() if name[:6] != "LLAMA_"}
    command = [*command, "--host", "127.0.0.1", "--port", str(port)]
    with tempfile.TemporaryDirectory() as folder, (log := Path(folder, "log")).open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=clean)
        try:
            server = Server(process, log, port, timeout)
            server.wait_until_healthy()
            yield server
        finally:
            process.kill()
            process.wait()


def block_order(settings: Sequence[str], reps: int) -> list[str]:
    """Plain first, in the middle and last of every repetition; every second one backwards."""
    others = [setting for setting in settings if setting != PLAIN]
    half = (len(others) + 1) // 2
    once = [PLAIN, *others[:half], PLAIN, *others[half:], PLAIN]
    order = [PLAIN]
    for rep in range(reps):
        order += once[-2::-1] if rep % 2 else once[1:]
    return order


def measure(chosen: argparse.Namespace, results: Results) -> None:
    """Runs all blocks. A setting that fails is left out from then on; plain must not fail."""
    order = block_order(chosen.settings, chosen.reps)
    for block, setting in enumerate(order):
        if setting in results.failed:
            continue
        print(f"block {block + 1} of {len(order)}: {setting}", file=sys.stderr, flush=True)
        try:
            with serving(_command(chosen, setting), chosen.timeout) as server:
                server.ask(WARM_UP, 16)
                for prompt in chosen.suite.prompts:
                    answer = server.ask(prompt.turns[0], chosen.max_tokens)
                    results.fingerprint = answer.get("system_fingerprint", "")
                    said = answer["choices"][0]["message"]
                    text = (said.get("reasoning_content") or "") + (said.get("content") or "")
                    about = (prompt.question_id, prompt.category, text, answer["timings"])
                    results.rows.append(Row(setting, block, *about))
        except ServerError as error:
            results.failed[setting] = str(error)
            if setting == PLAIN:
                return


def _command(chosen: argparse.Namespace, setting: str) -> list[str]:
    """What edgespec does by default, and the setting."""
    threads, flags = str(chosen.threads), SETTINGS[setting]
    command = [chosen.server, "-m", str(chosen.target), "-c", str(chosen.ctx), *flags]
    command += ["-t", threads, "-tb", threads, "-np", "1", "-fa", "auto", "--cache-ram", "0"]
    if "draft-simple" in flags[1]:
        command += ["-md", str(chosen.draft), "-td", threads, "-tbd", threads]
    return command + ["--no-repack"] * chosen.no_repack


def show(results: Results) -> None:
    """The table, the drift, and what to beware of."""
    categories = list(dict.fromkeys(row.category for row in results.rows))
    head = ["setting", "acceptance", "tokens/step", "tok/s", *categories, "all", "worst", "differ"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    settings = list(dict.fromkeys(row.setting for row in results.rows))
    for setting in settings:
        print(f"| {' | '.join(_cells(results, setting, categories))} |")
    blocks = dict.fromkeys(row.block for row in results.of(PLAIN))
    if drift := [geometric_mean(s.values()) for b in blocks if (s := results.speedups(PLAIN, b))]:
        shown = ", ".join(f"{ratio:.3f}" for ratio in drift)
        print(f"\nplain blocks: {shown}; spread {max(drift) / min(drift) - 1:.1%}")
    for setting in settings:
        if setting != PLAIN and not any(row.timings.get("draft_n") for row in results.of(setting)):
            print(f"{setting}: never drafted")
    for setting, reason in results.failed.items():
        print(f"{setting}: failed: {reason}")


def _cells(results: Results, setting: str, categories: Sequence[str]) -> list[str]:
    rows = results.of(setting)
    drafted = sum(row.timings.get("draft_n", 0) for row in rows)
    accepted = sum(row.timings.get("draft_n_accepted", 0) for row in rows)
    emitted = sum(row.timings["predicted_n"] - 1 for row in rows)
    speedups, rates = results.speedups(setting), results.rates(setting)
    category = {row.question_id: row.category for row in rows}
    groups = [[s for p, s in speedups.items() if category[p] == name] for name in categories]
    worst = min(speedups, key=lambda prompt: speedups[prompt], default="")
    return [
        setting,
        f"{accepted / drafted:.3f}" if drafted else "-",
        f"{emitted / (emitted - accepted):.2f}" if emitted > accepted else "-",
        f"{median(rates.values()):.2f}" if rates else "-",
        *(f"{geometric_mean(ratios):.3f}" if ratios else "-" for ratios in groups),
        f"{geometric_mean(speedups.values()):.3f}" if speedups else "-",
        f"{speedups[worst]:.3f} ({worst})" if worst else "-",
        f"{results.differing(setting)}/{len(rows)}",
    ]


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="the llama-server binary")
    parser.add_argument("--target", type=file_of, required=True, help="file, or name of a pair")
    parser.add_argument("--draft", type=file_of, required=True, help="likewise")
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--settings", type=lambda names: names.split(","), default=[*SETTINGS])
    parser.add_argument("--limit", type=int, help="prompts of each category")
    parser.add_argument("--reps", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--no-repack", action="store_true", help="as edgespec may for exactness")
    parser.add_argument("--timeout", type=float, default=600, help="seconds to load, or to answer")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(given)
    if unknown := set(chosen.settings) - set(SETTINGS):
        parser.error(f"no setting {', '.join(unknown)}: known are {', '.join(SETTINGS)}")
    if shutil.which(chosen.server) is None:
        parser.error(f"{chosen.server} is no program that can be run")
    for file in (chosen.target, chosen.draft):
        if not file.is_file():
            parser.error(f"there is no file {file}")
    try:
        chosen.suite = select(load_suite(chosen.suite), limit=chosen.limit)
    except BenchError as error:
        parser.error(str(error))
    return chosen


def main(given: Sequence[str] | None = None) -> int:
    chosen = _arguments(given)
    results, code = Results(), 0
    try:
        measure(chosen, results)
    except KeyboardInterrupt:
        code = 130
    show(results)
    if chosen.json:
        about = vars(chosen) | {"json": None, "server": results.fingerprint, "flags": SETTINGS}
        about |= {"target": chosen.target.name, "draft": chosen.draft.name}
        about |= {"suite": chosen.suite.name, "sha256": chosen.suite.sha256}
        about |= {"failed": results.failed, "rows": [row._asdict() for row in results.rows]}
        chosen.json.write_text(json.dumps(about, indent=1), encoding="utf-8")
    return code or int(bool(results.failed))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server must not outlive us
    sys.exit(main())
