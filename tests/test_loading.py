"""From paths and options to a running engine, on tiny models: what is chosen, said and freed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgespec import assembly, loading, measuring
from edgespec.catalog.fitting import PROCESS, Room
from edgespec.catalog.memory import Shape, model_header, need
from edgespec.catalog.paths import cache_dir
from edgespec.catalog.registry import user_file
from edgespec.decoding import calibration
from edgespec.engine import Engine
from edgespec.errors import (
    BackendError,
    CatalogError,
    EdgespecError,
    IncompatibleDraftError,
    ModelLoadError,
    OptionError,
    TemplateError,
    UnknownModelError,
)
from edgespec.llama import library, widths
from edgespec.llama.context import MAX_WIDTH, Context
from edgespec.llama.model import Model
from edgespec.llama.widths import PROMPT_PIECE, WIDTHS, WidthProbe
from edgespec.types import Completion
from tests import tiny_gguf
from tests.tiny_gguf import FIRST_PAIR, write_tiny_gguf

PROMPT = "the letters and pairs tee tea tot the letters and"
WARM: dict[str, Any] = {"temperature": 0.8, "seed": 7, "max_tokens": 40}
Load = Callable[..., Engine]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "target.gguf", quant="Q8_0")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "draft.gguf", quant="Q8_0", noise=0.05)


@pytest.fixture
def load() -> Iterator[Load]:
    """`edgespec.load` with one thread; closes what it loaded."""
    engines: list[Engine] = []

    def one(target: Path | str | None = None, **options: Any) -> Engine:
        engines.append(loading.load(target=target, **{"threads": 1, "exact": "off", **options}))
        return engines[-1]

    yield one
    for engine in engines:
        engine.close()


class Watch:
    """What is opened, closed and probed, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open: list[object] = []
        self.closed: list[str] = []
        self.probed: list[bool] = []
        for kind in (Model, Context):
            self._watch(monkeypatch, kind)
        real = widths.probe_widths

        def probe(context: Context, vocabulary: Any, **options: Any) -> WidthProbe:
            model = next(one for one in reversed(self.open) if isinstance(one, Model))
            self.probed.append(model.repack)
            return real(context, vocabulary, **options)

        monkeypatch.setattr(measuring, "probe_widths", probe)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
        init, close = kind.__init__, kind.close

        def opened(made: Any, *arguments: Any, **options: Any) -> None:
            init(made, *arguments, **options)
            self.open.append(made)

        def closed(made: Any) -> None:
            if made in self.open:
                self.open.remove(made)
                self.closed.append(kind.__name__)
            close(made)

        monkeypatch.setattr(kind, "__init__", opened)
        monkeypatch.setattr(kind, "close", closed)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def answer(engine: Engine, **options: Any) -> Completion:
    return engine.generate(PROMPT, **{**WARM, **options})


# What is chosen.


def test_a_target_alone_is_drafted_for_by_ngrams(target: Path, load: Load) -> None:
    info = load(target).info
    assert (info.target, info.draft, info.drafter) == ("target.gguf", "", "n-gram")
    assert info.num_draft_tokens == "auto"
    assert info.n_ctx == 512  # as it was trained
    assert info.threads == 1
    assert len(info.devices) == len(library.devices())
    assert info.exact_widths is None


def test_a_draft_model_drafts(target: Path, draft: Path, load: Load) -> None:
    engine = load(target, draft=draft, num_draft_tokens=3)
    assert (engine.info.draft, engine.info.drafter) == ("draft.gguf", "model")
    stats = answer(engine).stats
    assert 0 < stats.by_drafter["model"][1] < stats.by_drafter["model"][0]


@pytest.mark.parametrize(
    ("options", "drafter", "k", "drafters"),
    [
        ({}, "n-gram", "auto", ("n-gram",)),  # the draft model is as dear as the target
        ({"remember": False}, "auto", "auto", ("model", "n-gram")),
        ({"drafter": "model"}, "model", "auto", ("model",)),
        ({"drafter": "n-gram"}, "n-gram", "auto", ("n-gram",)),
        ({"drafter": "none"}, "", 0, ()),
        ({"num_draft_tokens": 0}, "", 0, ()),
        ({"num_draft_tokens": 5}, "model", 5, ("model", "n-gram")),
        ({"num_draft_tokens": 5, "drafter": "model"}, "model", 5, ("model",)),
        ({"num_draft_tokens": 32, "drafter": "n-gram"}, "n-gram", 32, ("n-gram",)),
    ],
)
def test_drafters_and_k(
    options: dict[str, Any],
    drafter: str,
    k: int | str,
    drafters: tuple[str, ...],
    target: Path,
    draft: Path,
    load: Load,
    equally_dear: None,
) -> None:
    wants_model = options.get("drafter") in (None, "model")
    engine = load(target, draft=draft if wants_model else None, **options)
    info = engine.info
    assert (info.drafter, info.num_draft_tokens, info.drafters) == (drafter, k, drafters)
    assert info.draft == ("draft.gguf" if "model" in drafters else "")
    stats = answer(engine).stats
    assert {name for joined in stats.by_drafter for name in joined.split("+")} <= set(drafters)
    if k != "auto":
        assert max(stats.lengths) <= k  # type: ignore[operator]


# What is measured and learned.


def test_a_draft_model_that_cannot_pay_is_not_kept_and_that_is_said_with_numbers(
    target: Path, draft: Path, load: Load, watch: Watch, equally_dear: None
) -> None:
    engine = load(target, draft=draft)
    (note,) = [note for note in engine.info.notes if "not kept" in note]
    assert re.search(r"draft.gguf .* takes [\d.]+ ms, one of the target [\d.]+ ms", note)
    assert "--drafter model keeps it" in note
    assert watch.closed == ["Context", "Model"] * (1 + len(watch.probed))
    assert answer(engine).tokens == answer(load(target, num_draft_tokens=0)).tokens
    insisted = load(target, draft=draft, drafter="model")
    assert not any("not kept" in note for note in insisted.info.notes)


def test_costs_are_measured_once(target: Path, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated = []
    real = calibration.calibrate

    def calibrate(*arguments: Any, **options: Any) -> Any:
        calibrated.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(measuring, "calibrate", calibrate)
    for _ in range(2):
        load(target).close()
    assert len(calibrated) == 1
    load(target, num_draft_tokens=3).close()
    load(target, num_draft_tokens=0).close()
    assert len(calibrated) == 1, "a fixed k needs no costs"
    load(target, threads=2).close()
    assert len(calibrated) == 2


def kept(measured: str) -> list[Path]:
    folder = cache_dir() / "measurements"
    files = folder.iterdir() if folder.is_dir() else []
    return [file for file in files if f'"{measured}"' in file.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda value: {},
        lambda value: value | {"seconds": {}},
        lambda value: value | {"seconds": {"1": 0.0}},
        lambda value: value | {"seconds": {"1": float("nan")}},
        lambda value: value | {"growth": -1.0},
        lambda value: value | {"rebuild": "much"},
    ],
)
def test_spoilt_costs_are_measured_anew(
    spoil: Callable[[dict[str, Any]], Any], target: Path, load: Load
) -> None:
    load(target).close()
    (file,) = kept("costs of passes, at two depths")
    whole = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(whole | {"value": spoil(whole["value"])}), encoding="utf-8")
    load(target).close()
    again = json.loads(file.read_text(encoding="utf-8"))
    assert again["value"].keys() == whole["value"].keys()
    assert all(0 < seconds < 10 for seconds in again["value"]["seconds"].values())


def test_what_was_learned_is_kept_for_the_next_time(target: Path, load: Load) -> None:
    pair = loading.load_pair(target=target, threads=1, exact="off")
    answer(pair.engine)
    assert pair.knowledge is not None
    learned = pair.knowledge.state()
    pair.engine.close()
    assert len(kept("what drafts are worth")) == 1
    again = loading.load_pair(target=target, threads=1, exact="off")
    assert again.knowledge is not None
    assert again.knowledge.state() == json.loads(json.dumps(learned))
    again.engine.close()
    fresh = loading.load_pair(target=target, threads=1, exact="off", remember=False)
    assert fresh.knowledge is not None
    assert fresh.knowledge.state() != learned
    fresh.engine.close()


@pytest.mark.parametrize("drafter", ["model", "auto"])
def test_a_prediction_is_drafted_from_whoever_drafts_else(
    drafter: str, target: Path, draft: Path, load: Load
) -> None:
    engine = load(target, draft=draft, num_draft_tokens=4, drafter=drafter)
    assert set(answer(engine).stats.by_drafter) == {"model"}
    predicted = answer(engine, prediction="tee tea tot " * 20)
    assert set(predicted.stats.by_drafter) == {"prediction"}


def test_every_drafter_and_k_gives_the_same_answer(target: Path, draft: Path, load: Load) -> None:
    """Q8_0 is bit-identical at these widths, so that nothing may differ."""
    probing = load(target, exact="on")
    identical = probing.info.exact_widths or frozenset()
    if not set(range(1, 8)) <= identical:
        pytest.skip("this machine's kernels do not give identical results up to width 7")
    wanted = answer(load(target, num_draft_tokens=0))
    assert len(set(wanted.tokens)) > 10
    for options in (
        {"num_draft_tokens": 1, "draft": draft},
        {"num_draft_tokens": 3, "drafter": "n-gram"},
        {"num_draft_tokens": 3, "draft": draft},
        {"num_draft_tokens": 6, "draft": draft},
    ):
        assert answer(load(target, **options)).tokens == wanted.tokens
    assert answer(load(target, draft=target, num_draft_tokens=3)).stats.acceptance_rate == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_draft_tokens": -1}, "-k must be auto or between 0 and 32, not -1"),
        ({"num_draft_tokens": MAX_WIDTH}, "-k must be auto or between 0 and 32, not 33"),
        ({"num_draft_tokens": "3"}, "-k must be auto or between 0 and 32, not 3"),
        ({"num_draft_tokens": 3, "drafter": "none"}, "-k 3 needs someone to draft"),
        ({"draft": "x.gguf", "drafter": "n-gram"}, "x.gguf is of no use with --drafter n-gram"),
        ({"drafter": "oracle"}, "no drafter 'oracle': choose auto, model, n-gram or none"),
        ({"drafter": "model"}, "there is none: add --draft"),
        ({"exact": "maybe"}, "exact must be auto, on or off"),
        ({"n_ctx": 0}, "n_ctx must be between 1 and 2147483647, not 0"),
        ({"n_ctx": "big"}, "n_ctx must be between 1 and 2147483647, not 'big'"),
        ({"threads": -2}, "threads must be"),
        ({"max_sequences": 0}, "max_sequences must be"),
        ({"max_sequences": 257}, "max_sequences must be between 1 and 256"),
        ({"num_draft_token": 3, "ctx": 4}, "no option num_draft_token, ctx: known are num_draft"),
        ({"pair": "default"}, "either a pair or a target"),
    ],
)
def test_options_that_make_no_sense(
    options: dict[str, Any], message: str, target: Path, load: Load, watch: Watch
) -> None:
    with pytest.raises(OptionError) as caught:
        load(target, **options)
    assert message in str(caught.value)
    assert watch.open == []


# What does not go together.


def test_a_draft_of_another_vocabulary(target: Path, tmp_path: Path, load: Load) -> None:
    other = tiny_gguf.write_changed_vocabulary(tmp_path / "other.gguf", token=FIRST_PAIR + 9)
    with pytest.raises(IncompatibleDraftError, match=f"token {FIRST_PAIR + 9} is .* and '~~'"):
        load(target, draft=other)


@pytest.mark.parametrize("arch", ["mamba", "lfm2"])
def test_a_recurrent_target_runs_plain_and_says_so(
    arch: str, tmp_path: Path, draft: Path, load: Load
) -> None:
    path = write_tiny_gguf(tmp_path / "recurrent.gguf", arch=arch, quant="Q8_0")
    for options in ({}, {"draft": draft}, {"num_draft_tokens": 5, "exact": "auto"}):
        engine = load(path, **options)
        assert (engine.info.drafter, engine.info.drafters) == ("", ())
        assert any("keeps a recurrent state: it runs plain" in note for note in engine.info.notes)
        first = answer(engine)
        assert first.stats.drafted == 0
        assert answer(engine).tokens == first.tokens
    plain = load(path, num_draft_tokens=0)
    assert plain.info.notes == tuple(n for n in plain.info.notes if "AMX" in n)
    assert answer(plain).tokens == first.tokens


@pytest.mark.parametrize("arch", ["mamba", "lfm2"])
def test_a_recurrent_draft_model_works_and_is_called_slow(
    arch: str, target: Path, tmp_path: Path, load: Load
) -> None:
    path = write_tiny_gguf(tmp_path / "recurrent.gguf", arch=arch, quant="Q8_0")
    engine = load(target, draft=path, num_draft_tokens=3)
    assert any("reads the whole text again" in note for note in engine.info.notes)
    got = answer(engine)
    assert got.stats.by_drafter["model"][0] > 0
    assert got.tokens == answer(load(target, num_draft_tokens=0)).tokens


def test_a_draft_model_with_less_context_goes_on_with_the_end_of_the_text(
    target: Path, tmp_path: Path, load: Load
) -> None:
    small = write_tiny_gguf(tmp_path / "small.gguf", quant="Q8_0", noise=0.05, n_ctx_train=64)
    engine = load(target, draft=small, num_draft_tokens=3)
    got = engine.generate(PROMPT, **{**WARM, "max_tokens": 200})
    assert max(step.position for step in got.steps if step.drafted) > 150
    assert got.tokens == answer(load(target, num_draft_tokens=0), max_tokens=200).tokens


def test_many_sequences_with_long_drafts_fit_into_one_pass(
    target: Path, tmp_path: Path, load: Load
) -> None:
    other = write_tiny_gguf(tmp_path / "other.gguf", quant="Q8_0", seed=1)  # hardly ever right
    count, k = 16, MAX_WIDTH - 1
    engine = load(target, draft=other, num_draft_tokens=k, max_sequences=count, n_ctx=160 * count)
    options = {**WARM, "max_tokens": 80, "logit_bias": {1: -100.0, 3: -100.0}}  # no end
    generations = [engine.submit(f"tee {i}", **options) for i in range(count)]
    for chunk in generations[0].chunks():
        if chunk.steps and chunk.steps[0].pass_rows > 512:
            break
    for generation in generations[1:]:
        generation.cancel()
        assert generation.result().finish_reason in ("cancelled", "length")
    assert max(step.pass_rows for one in generations for step in one._steps) == count * (k + 1)


# Numerics.


def script(
    monkeypatch: pytest.MonkeyPatch, repacked: int, original: int, seconds: float = 1.0
) -> list[bool]:
    """Measurements that find widths identical up to these."""
    asked: list[bool] = []

    def probe(self: Any, path: Path, repack: bool, mixed: bool) -> WidthProbe:
        asked.append(repack)
        widest = repacked if repack else original
        differences = {width: 0.0 if width <= widest else 0.5 for width in WIDTHS}
        return WidthProbe(differences, {1: 1.0 if repack else seconds, PROMPT_PIECE: 0.0})

    monkeypatch.setattr(measuring.Measuring, "widths", probe)
    return asked


def test_exact_off_promises_nothing(target: Path, load: Load) -> None:
    engine = load(target, exact="off", draft=target, num_draft_tokens=3)
    assert engine.info.exact_widths is None
    got = answer(engine)
    assert got.stats.drafted > 0
    assert got.claim == "same distribution"


@pytest.mark.parametrize("exact", ["auto", "on"])
def test_exact_widths_bound_the_passes(
    exact: str, target: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, repacked=4, original=9)
    engine = load(target, draft=target, exact=exact, num_draft_tokens=6)
    assert engine.info.exact_widths == frozenset({1, 2, 3, 4})
    got = answer(engine)
    assert max(got.stats.lengths) == 3
    assert got.claim == "identical"


def test_original_weights_are_loaded_where_they_are_better(
    target: Path, load: Load, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = script(monkeypatch, repacked=3, original=7)
    monkeypatch.setattr(library, "system_info", lambda: "CPU : AVX = 1")
    engine = load(target, exact="auto")
    assert list(dict.fromkeys(asked)) == [True, False]
    assert [one.repack for one in watch.open if isinstance(one, Model)] == [False]
    assert engine.info.exact_widths == frozenset(range(1, 8))


def test_a_mixed_cache_is_used_where_it_makes_widths_identical(
    target: Path, draft: Path, load: Load, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(self: Any, path: Path, repack: bool, mixed: bool) -> WidthProbe:
        differences = {width: 0.0 if mixed and width < 5 else 0.5 for width in WIDTHS}
        return WidthProbe(differences, {1: 1.0, PROMPT_PIECE: 0.0})

    monkeypatch.setattr(measuring.Measuring, "widths", probe)
    engine = load(target, draft=draft, exact="auto")
    assert engine.info.kv_cache == "F16/BF16"
    assert engine.info.exact_widths == frozenset({1, 2, 3, 4})
    assert answer(engine).claim == "identical"
    monkeypatch.setattr(library, "supports_gpu", lambda: True)
    assert load(target, exact="auto").info.kv_cache == "F16/F16"
    assert load(target, exact="auto", gpu_layers=0).info.kv_cache == "F16/BF16"
    assert load(target, exact="off", gpu_layers=0).info.kv_cache == "F16/F16"


def test_auto_promises_nothing_where_it_would_cost(
    target: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, repacked=1, original=1)
    engine = load(target, draft=target, exact="auto", num_draft_tokens=4)
    assert engine.info.exact_widths is None
    got = answer(engine)
    assert max(got.stats.lengths) == 4
    assert got.claim == "same distribution"


def test_exact_on_where_nothing_is_identical_is_plain_and_says_so(
    target: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, repacked=1, original=1)
    engine = load(target, draft=target, exact="on", num_draft_tokens=4)
    assert any("--exact on means plain decoding here" in note for note in engine.info.notes)
    assert not any("not kept" in note for note in engine.info.notes)
    assert any("--exact on" in decision for decision in engine.info.decisions)
    got = answer(engine)
    assert got.stats.drafted == 0
    assert got.claim == "identical"


def test_measurements_are_kept(target: Path, load: Load, watch: Watch) -> None:
    first = load(target, exact="on")
    measured = len(watch.probed)
    assert measured >= 1
    again = load(target, exact="on")
    assert len(watch.probed) == measured
    assert again.info.exact_widths == first.info.exact_widths
    load(target, exact="on", gpu_layers=0)
    assert len(watch.probed) == 2 * measured, "elsewhere other kernels compute"


def test_a_changed_file_is_measured_anew(target: Path, load: Load, watch: Watch) -> None:
    load(target, exact="on").close()
    measured = len(watch.probed)
    write_tiny_gguf(target, quant="Q8_0", n_vocab=340)
    load(target, exact="on")
    assert len(watch.probed) == 2 * measured


@pytest.mark.parametrize(
    "spoil",
    [
        lambda kept: "",
        lambda kept: "{",
        lambda kept: "\0\xff",
        lambda kept: "[1, 2]",
        lambda kept: json.dumps({**kept, "key": {}}),
        lambda kept: json.dumps({**kept, "value": None}),
        lambda kept: json.dumps({**kept, "value": {}}),
        lambda kept: json.dumps({**kept, "value": {"differences": {}, "seconds": {}}}),
        lambda kept: json.dumps({**kept, "value": {"differences": [1], "seconds": 3}}),
        lambda kept: json.dumps({**kept, "value": {"differences": {"x": 1}, "seconds": {"1": 1}}}),
    ],
)
def test_spoilt_measurements_are_made_anew(
    spoil: Callable[[dict[str, Any]], str], target: Path, load: Load, watch: Watch
) -> None:
    first = load(target, exact="on")
    measured = len(watch.probed)
    files = kept("pass widths at two depths")
    assert len(files) == measured
    for file in files:
        text = file.read_text(encoding="utf-8")
        file.write_text(spoil(json.loads(text)), encoding="utf-8")
    assert load(target, exact="on").info.exact_widths == first.info.exact_widths
    assert len(watch.probed) == 2 * measured
    load(target, exact="on")
    assert len(watch.probed) == 2 * measured


def test_a_cache_that_cannot_be_written_is_no_error(
    target: Path, load: Load, edgespec_home: Path
) -> None:
    edgespec_home.mkdir()
    (edgespec_home / "cache").write_text("in the way")
    assert load(target, exact="on").info.exact_widths


# What is said.


def test_a_context_beyond_the_training_is_noted(target: Path, load: Load) -> None:
    engine = load(target, n_ctx=600)
    assert engine.info.n_ctx == 600
    assert any("600 tokens is beyond the 512" in note for note in engine.info.notes)
    assert not any("beyond" in note for note in load(target, n_ctx=512).info.notes)


def test_a_long_training_does_not_mean_a_huge_context(tmp_path: Path, load: Load) -> None:
    path = write_tiny_gguf(tmp_path / "long.gguf", n_ctx_train=100_000)
    assert load(path).info.n_ctx == loading.DEFAULT_CONTEXT


def test_without_a_template_messages_fail_and_prompts_work(tmp_path: Path, load: Load) -> None:
    engine = load(write_tiny_gguf(tmp_path / "base.gguf", chat_template=None))
    assert not engine.has_template
    with pytest.raises(TemplateError, match=r"base\.gguf has no chat template"):
        engine.generate(messages=[{"role": "user", "content": "Hello"}])
    assert answer(engine).tokens


def test_a_broken_template_only_matters_to_those_who_chat(tmp_path: Path, load: Load) -> None:
    engine = load(write_tiny_gguf(tmp_path / "m.gguf", chat_template="{% if %}"))
    with pytest.raises(TemplateError):
        engine.generate(messages=[{"role": "user", "content": "Hello"}])
    assert answer(engine).tokens


def test_messages_and_the_next_turn(target: Path, load: Load) -> None:
    engine = load(target)
    messages = [{"role": "user", "content": "Hello"}]
    first = engine.generate(messages=messages, **WARM)
    assert first.usage.cached_tokens == 0
    asked = engine.tokenize(None, messages)
    messages += [
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "And now?"},
    ]
    second = engine.generate(messages=messages, **WARM)
    assert second.usage.cached_tokens >= len(asked)


def test_progress_is_reported_by_file(target: Path, draft: Path, load: Load) -> None:
    seen: list[tuple[str, float]] = []
    load(target, draft=draft, exact="on", report=lambda what, done: seen.append((what, done)))
    for what in ("measuring target.gguf", "loading target.gguf", "loading draft.gguf"):
        assert max(done for said, done in seen if said.startswith(what)) == 1.0
    assert all(0.0 <= done <= 1.0 for _, done in seen)


# Names.


def test_names_that_do_not_exist(load: Load) -> None:
    with pytest.raises(UnknownModelError):
        load("no-such-model")
    with pytest.raises(UnknownModelError):
        load(pair="no-such-pair")


def test_the_default_pair_is_fetched_or_asked_for(target: Path, load: Load) -> None:
    with pytest.raises(CatalogError, match="edgespec models pull"):
        load()
    fetched: list[str] = []

    def fetch(model: Any) -> Path:
        fetched.append(model.name)
        return target

    assert load(fetch=fetch).info.target == "target.gguf"
    assert len(fetched) == 1


def test_a_pair_of_the_user_with_another_draft(
    target: Path, draft: Path, edgespec_home: Path, load: Load
) -> None:
    config = edgespec_home / "config"
    config.mkdir(parents=True)
    (config / "models.toml").write_text(
        f"[models.big]\nsource = {json.dumps(str(target))}\nfiles = []\n"
        f"[models.small]\nsource = {json.dumps(str(draft))}\nfiles = []\n"
        '[pairs.mine]\ntarget = "big"\ndraft = "small"\n',
        encoding="utf-8",
    )
    assert load(pair="mine", num_draft_tokens=3).info.draft == "draft.gguf"
    other = load(pair="mine", draft=target, num_draft_tokens=3)
    assert other.info.draft == "target.gguf"
    assert load("big").info.draft == ""
    assert load(pair="big").info.draft == ""


# What is freed.


def test_close_frees_contexts_before_their_models(
    target: Path, draft: Path, load: Load, watch: Watch
) -> None:
    engine = load(target, draft=draft, drafter="model")
    assert len(watch.open) == 4
    answer(engine)
    engine.close()
    assert watch.open == []
    assert watch.closed[-4:] == ["Context", "Model", "Context", "Model"]
    with pytest.raises(EdgespecError, match="closed"):
        answer(engine)


def test_the_probe_frees_what_it_loaded(target: Path, load: Load, watch: Watch) -> None:
    load(target, exact="on")
    assert [type(one) for one in watch.open] == [Model, Context]
    assert watch.closed == ["Context", "Model"] * len(watch.probed)


def test_a_failed_load_frees_everything(
    target: Path, draft: Path, tmp_path: Path, watch: Watch, load: Load, monkeypatch: Any
) -> None:
    other = tiny_gguf.write_changed_vocabulary(tmp_path / "other.gguf")
    broken = tiny_gguf.write_truncated(tmp_path / "broken.gguf")
    failures: list[tuple[type[Exception], dict[str, Any]]] = [
        (IncompatibleDraftError, {"draft": other}),
        (ModelLoadError, {"draft": broken}),
        (ModelLoadError, {"draft": tmp_path / "none.gguf"}),
        (ModelLoadError, {"n_ctx": 2**31 - 1, "max_sequences": 2}),
        (ModelLoadError, {"n_ctx": 2**31 - 1, "max_sequences": 2, "exact": "on"}),
    ]
    for error, options in failures:
        with pytest.raises(error):
            load(target, **options)
        assert watch.open == []
    for path in (broken, tmp_path):
        with pytest.raises(ModelLoadError):
            load(path)
        assert watch.open == []

    def fail(*_arguments: Any, **_options: Any) -> None:
        raise BackendError("no thread")

    for module, name in (
        (measuring, "probe_widths"),
        (measuring, "calibrate"),
        (assembly, "Scheduler"),
        (assembly, "Engine"),
        (assembly, "chat_template"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, fail)
            with pytest.raises(BackendError):
                load(target, draft=draft, exact="on", gpu_layers=0)
        assert watch.open == [], name
    assert "Context" in watch.closed


def test_ctrl_c_during_the_load_frees_everything(target: Path, load: Load, watch: Watch) -> None:
    def interrupt(what: str, done: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(target, report=interrupt)
    assert watch.open == []


# Memory.


def room_for(monkeypatch: pytest.MonkeyPatch, megabytes: float) -> None:
    """A machine with so much memory free beside what every process takes."""
    free = Room(ram=int((PROCESS + megabytes * 1e6) / 0.97))
    monkeypatch.setattr("edgespec.placing.room", lambda: free)


def megabytes(path: Path, n_ctx: int) -> float:
    return need(model_header(path), Shape(n_ctx)).total / 1e6


def test_a_draft_model_without_room_is_left_out(
    target: Path, draft: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    room_for(monkeypatch, megabytes(target, 512) + 0.1)
    info = load(target, draft=draft).info
    assert (info.draft, info.drafters) == ("", ("n-gram",))
    (decision,) = info.decisions
    assert "draft.gguf is left out" in decision
    assert decision in info.notes
    with pytest.raises(ModelLoadError, match="left out"):
        load(target, draft=draft, drafter="model")


def test_what_does_not_fit_is_refused_unless_forced(
    target: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    room_for(monkeypatch, 0.1)
    with pytest.raises(ModelLoadError, match=r"needs .* GB of memory .*--force"):
        load(target)
    assert answer(load(target, force=True)).tokens
    room_for(monkeypatch, 1e6)
    assert not any("memory" in note for note in load(target).info.notes)


# A draft model that nobody named.


@pytest.fixture
def family(tmp_path: Path) -> tuple[Path, Path]:
    """A target, and a draft model in a folder of the user's."""
    big = write_tiny_gguf(tmp_path / "big.gguf", n_vocab=4000)
    small = write_tiny_gguf(tmp_path / "small.gguf", n_vocab=4000, quant="Q4_0")
    user_file().parent.mkdir(parents=True)
    user_file().write_text(f"folders = ['{tmp_path}']\n", encoding="utf-8")
    return big, small


@pytest.mark.usefixtures("equally_dear", "sizes_alone_count")
def test_auto_takes_the_best_draft_model_of_this_machine(
    family: tuple[Path, Path], load: Load
) -> None:
    info = load(family[0], draft="auto", drafter="model").info
    assert info.draft == "small.gguf"
    (decision,) = info.decisions
    assert "small.gguf drafts for big.gguf: the best on this machine" in decision


@pytest.mark.parametrize("options", [{}, {"draft": "none"}, {"draft": "auto", "drafter": "n-gram"}])
def test_none_is_taken_where_none_is_wanted(
    options: dict[str, Any], family: tuple[Path, Path], load: Load
) -> None:
    assert load(family[0], **options).info.draft == ""


def test_none_leaves_out_the_draft_of_a_pair(
    family: tuple[Path, Path], load: Load, tmp_path: Path
) -> None:
    big, small = family
    user_file().write_text(
        f"[models.big]\nsource = 'path:{big}'\n[models.small]\nsource = 'path:{small}'\n"
        "[pairs.both]\ntarget = 'big'\ndraft = 'small'\n",
        encoding="utf-8",
    )
    assert load(pair="both", draft="none").info.draft == ""
