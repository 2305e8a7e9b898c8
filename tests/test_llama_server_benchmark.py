"""The comparison with llama-server: its arithmetic, its fairness, and servers that misbehave."""

from __future__ import annotations

import fcntl
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import llama_server
from benchmarks.llama_server import PLAIN, SETTINGS, Results, Row, block_order, main
from edgespec.bench.suite import load_suite

# Stands in for the binary: tells the times its script holds, and notes how it is used.
FAKE = """
import argparse, fcntl, http.server, json, os, pathlib, socketserver, sys

parser = argparse.ArgumentParser(allow_abbrev=False)
for flag in ("-m", "-c", "-t", "-tb", "-np", "-fa", "--cache-ram", "--host", "--port", "-td",
             "-tbd", "-md", "--spec-type", "--spec-draft-n-max", "--spec-draft-p-min"):
    parser.add_argument(flag)
parser.add_argument("--no-repack", action="store_true")
flags = vars(parser.parse_args())
here = pathlib.Path(__file__).parent
lock = open(here / "alive", "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # dies when another one is alive
script = json.loads((here / "script.json").read_text())

def note(name, what):
    with open(here / name, "a") as file:
        print(json.dumps(what), file=file)
    return len((here / name).read_text().splitlines())

speed = script["speeds"][note("starts", flags | {"environment": sorted(os.environ)}) - 1]
print("loading", "\\n" * 99 + "the last line", flush=True)
if flags["spec_type"] == script["dies"]:
    sys.exit(3)

class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer(200 if self.path == "/health" and script["healthy"] else 503, {})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        note("requests", [self.path, body])
        if flags["spec_type"] == script["refuses"]:
            return self.answer(400, {"error": "the request exceeds the context"})
        if flags["spec_type"] == script["crashes"]:
            os._exit(1)
        answers = script["answers"][flags["spec_type"]]
        prompt = body["messages"][0]["content"]
        # What is asked to warm up must not count.
        rate, drafted, accepted, text = answers.get(prompt, (999, 9, 9, ""))
        timings = {"predicted_n": 11 if rate else 1, "predicted_per_second": rate * speed}
        if drafted:
            timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
        message = {"role": "assistant", "content": text}
        self.answer(200, {"choices": [{"message": message}], "timings": timings,
                          "system_fingerprint": "fake-1"})

socketserver.TCPServer((flags["host"], int(flags["port"])), Handler).serve_forever()
"""

# In the order of running, in which categories take turns.
PROMPTS = {"Prompt 1": "chat", "Prompt 2": "code", "Prompt 3": "chat", "Prompt 4": "code"}
# Tokens per second, drafted, accepted, text; the last answer is a single token.
ANSWERS = {
    "none": [(10, 0, 0, "a"), (40, 0, 0, "b"), (20, 0, 0, "c"), (0, 0, 0, "d")],
    "draft-simple": [(20, 8, 4, "a"), (80, 8, 7, "b"), (10, 8, 4, "C"), (0, 0, 0, "d")],
    "ngram-mod": [(10, 0, 0, "a"), (40, 0, 0, "b"), (20, 0, 0, "c"), (0, 0, 0, "d")],
}


class Fake:
    """The fake binary in a directory of its own, and what it noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.binary = folder / "llama-server"
        self.binary.write_text(f"#!{sys.executable}\n{FAKE}", encoding="utf-8")
        self.binary.chmod(0o755)
        self.model = folder / "model.gguf"
        self.model.touch()
        self.script: dict[str, Any] = {"speeds": [1.0] * 20, "healthy": True}
        self.script |= {"dies": "", "refuses": "", "crashes": ""}
        self.script["answers"] = {
            kind: dict(zip(PROMPTS, told, strict=True)) for kind, told in ANSWERS.items()
        }
        self.suite = folder / "tiny.jsonl"
        lines = (
            {"question_id": text[-1], "category": category, "turns": [text, "Why?"]}
            for text, category in PROMPTS.items()
        )
        self.suite.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    def run(self, settings: str, *more: str) -> int:
        (self.folder / "script.json").write_text(json.dumps(self.script), encoding="utf-8")
        files = {"server": self.binary, "target": self.model, "draft": self.model}
        files["suite"] = self.suite
        options = [part for name, file in files.items() for part in (f"--{name}", str(file))]
        return main([*options, "--settings", settings, *more])

    def noted(self, name: str) -> list[Any]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def kinds(self) -> list[str]:
        return [start["spec_type"] for start in self.noted("starts")]

    def is_dead(self) -> bool:
        with (self.folder / "alive").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    folder = tmp_path / "fake"
    folder.mkdir()
    return Fake(folder)


def test_the_numbers_are_right(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    # Plain runs as the first, third and fifth server.
    fake.script["speeds"] = [1.0, 1.0, 1.2, 1.0, 0.8]
    assert fake.run("draft n=1 p=0,ngram-mod") == 0
    assert capsys.readouterr().out.splitlines() == [
        "| setting | acceptance | tokens/step | tok/s | chat | code | all | worst | differ |",
        "|---|---|---|---|---|---|---|---|---|",
        "| plain | - | 1.00 | 20.00 | 1.000 | 1.000 | 1.000 | 1.000 (1) | 0/12 |",
        # Speed-ups of 2, 1/2 and 2; 15 of 24 accepted; 30 tokens after the first in 15 steps.
        "| draft n=1 p=0 | 0.625 | 2.00 | 20.00 | 1.000 | 2.000 | 1.260 | 0.500 (3) | 1/4 |",
        "| ngram-mod | - | 1.00 | 20.00 | 1.000 | 1.000 | 1.000 | 1.000 (1) | 0/4 |",
        "",
        "plain blocks: 1.000, 1.200, 0.800; spread 50.0%",
        "ngram-mod: never drafted",
    ]
    assert fake.kinds() == ["none", "draft-simple", "none", "ngram-mod", "none"]
    assert fake.is_dead()


def test_repetitions_are_medians_and_run_backwards(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.script["speeds"] = [1, 1, 1, 1, 1, 1, 1, 3, 1]
    assert fake.run("draft n=1 p=0,ngram-mod", "--reps", "2", "--limit", "1") == 0
    assert fake.kinds() == [
        *("none", "draft-simple", "none", "ngram-mod", "none"),
        *("ngram-mod", "none", "draft-simple", "none"),
    ]
    # The medians of 20 and 60 against 10, and of 80 and 240 against 40.
    assert "| 100.00 | 4.000 | 4.000 | 4.000 | 4.000 (1) | 0/4 |" in capsys.readouterr().out


def test_every_setting_runs_under_the_same_conditions(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_THREADS", "1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    fake.script["answers"] = {flags[1]: {} for flags in SETTINGS.values()}
    assert fake.run(",".join(SETTINGS), "--threads", "3", "--no-repack", "--limit", "1") == 0
    same: dict[str, Any] = {
        "m": str(fake.model),
        "c": "4096",
        "t": "3",
        "tb": "3",
        "np": "1",
        "fa": "auto",
    }
    same |= {"cache_ram": "0", "host": "127.0.0.1", "no_repack": True}
    drafts = {"md": str(fake.model), "td": "3", "tbd": "3"}
    starts = fake.noted("starts")
    assert len(starts) == len(SETTINGS) + 2
    for start in starts:
        assert start | same == start
        drafting = "draft-simple" in start["spec_type"]
        assert {name: start[name] for name in drafts} == (
            drafts if drafting else dict.fromkeys(drafts)
        )
        assert "LLAMA_ARG_THREADS" not in start["environment"]
        assert "PATH" in start["environment"]
    limits = [(start["spec_draft_n_max"], start["spec_draft_p_min"]) for start in starts]
    assert {limit for limit in limits if None not in limit} == {
        (n, p) for n in "1237" for p in ("0", "0.6")
    }


def test_requests_are_greedy_uncached_first_turns(fake: Fake) -> None:
    assert fake.run(PLAIN, "--max-tokens", "50") == 0
    asked = fake.noted("requests")
    assert len(asked) == 3 * (1 + len(PROMPTS))
    for path, body in asked:
        assert path == "/v1/chat/completions"
        assert body["temperature"] == 0
        assert body["cache_prompt"] is False
        assert len(body["messages"]) == 1
    texts = [body["messages"][0]["content"] for _, body in asked[: 1 + len(PROMPTS)]]
    assert texts == [llama_server.WARM_UP, *PROMPTS]
    assert [body["max_tokens"] for _, body in asked[1:5]] == [50] * 4


def test_json_holds_every_answer_and_no_paths(fake: Fake, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert fake.run("ngram-mod", "--json", str(file)) == 0
    text = file.read_text(encoding="utf-8")
    assert str(tmp_path) not in text
    found = json.loads(text)
    sha256 = load_suite(str(fake.suite)).sha256
    assert (found["target"], found["server"], found["sha256"]) == ("model.gguf", "fake-1", sha256)
    assert len(found["rows"]) == 4 * len(PROMPTS)
    assert found["rows"][4] == {
        "setting": "ngram-mod",
        "block": 1,
        "question_id": "1",
        "category": "chat",
        "text": "a",
        "timings": {"predicted_n": 11, "predicted_per_second": 10},
    }


def test_a_setting_that_dies_at_start_is_left_out(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.script["dies"] = "draft-simple"
    assert fake.run("draft n=1 p=0,ngram-mod", "--reps", "2") == 1
    out = capsys.readouterr().out
    assert "draft n=1 p=0: failed: the server ended with code 3 at start; its last words:" in out
    assert out.rstrip().endswith("    the last line")
    assert "loading" not in out
    assert "| ngram-mod |" in out
    assert fake.kinds().count("draft-simple") == 1


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("refuses", "the server answered 400: "),
        ("crashes", "the server gave no answer: "),
        ("dies", "the server ended with code 3 at start"),
    ],
)
def test_without_plain_there_is_no_comparison(
    what: str, message: str, fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.script[what] = "none"
    assert fake.run("ngram-mod") == 1
    assert f"plain: failed: {message}" in capsys.readouterr().out
    assert fake.kinds() == ["none"]
    assert fake.is_dead()


def test_a_server_that_never_gets_healthy(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.script["healthy"] = False
    assert fake.run("ngram-mod", "--timeout", "0.7") == 1
    assert "plain: failed: the server was not ready after 0.7 s" in capsys.readouterr().out


def test_an_interrupt_ends_the_server_and_shows_what_is_done(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = llama_server.Server.ask

    def interrupted(server: llama_server.Server, text: str, max_tokens: int) -> Any:
        if "ngram-mod" in fake.kinds() and text == "Prompt 3":
            raise KeyboardInterrupt
        return ask(server, text, max_tokens)

    monkeypatch.setattr(llama_server.Server, "ask", interrupted)
    assert fake.run("draft n=1 p=0,ngram-mod") == 130
    out = capsys.readouterr().out
    assert "| draft n=1 p=0 | 0.625 |" in out
    assert "| ngram-mod | - | 1.00 | 25.00 | 1.000 | 1.000 | 1.000 | 1.000 (1) | 0/2 |" in out
    assert fake.is_dead()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--server", "./no-such-server"), "./no-such-server is no program that can be run"),
        (("--settings", "plain,draft n=9"), "no setting draft n=9: known are plain, draft n=1"),
        (("--draft", "absent.gguf"), "there is no file absent.gguf"),
        (("--suite", "quik"), "There is no suite or file 'quik'"),
    ],
)
def test_wrong_arguments(
    arguments: tuple[str, str], message: str, fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        fake.run(PLAIN, *arguments)
    assert message in capsys.readouterr().err
    assert not (fake.folder / "starts").exists()


@pytest.mark.parametrize("count", range(5))
def test_plain_is_first_in_the_middle_and_last(count: int) -> None:
    others = [f"s{i}" for i in range(count)]
    once = block_order([PLAIN, *others], 1)
    assert [setting for setting in once if setting != PLAIN] == others
    assert [i for i, setting in enumerate(once) if setting == PLAIN] == [
        0,
        (count + 1) // 2 + 1,
        count + 2,
    ]
    assert block_order(others, 2) == once + once[::-1][1:]


def test_answers_differ_only_from_the_first_plain_block() -> None:
    results = Results()
    timings = {"predicted_n": 2.0, "predicted_per_second": 1.0}
    for block, (setting, text) in enumerate([(PLAIN, "a"), ("x", "b"), (PLAIN, "b"), ("x", "a")]):
        results.rows.append(Row(setting, block, "1", "chat", text, timings))
    assert results.differing(PLAIN) == 1
    assert results.differing("x") == 1
