"""A llama.cpp context as a TokenModel: what it holds is what it was told, whatever came before.

Numerics (DESIGN section 6): where the widths used are bit-identical, one sequence alone in memory
gives bit for bit the logits of a fresh context, however often it was rewound. With company, cells
lie in another order, sums are taken in another order, and the last bits differ: here up to 0.05
where a single wrong token makes a difference above 0.5.
"""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.decoding.policy import Fixed
from edgespec.decoding.scheduler import Scheduler
from edgespec.decoding.sequence import Request
from edgespec.drafters.ngram import NgramDrafter
from edgespec.errors import (
    BackendError,
    CannotRewindError,
    DecodeAbortedError,
    EdgespecError,
    ModelLoadError,
    NoRoomError,
)
from edgespec.llama.context import MAX_WIDTH, Context
from edgespec.llama.model import Model
from edgespec.llama.widths import probe_widths
from edgespec.protocols import Logits, Row
from tests.fakes import Ticks
from tests.test_scheduler import GREEDY, emitted, run
from tests.tiny_gguf import WINDOW, write_tiny_gguf

SEQUENCES = 3
TOLERANCE = 0.2
Load = Callable[..., Model]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    """Tiny models by architecture and quantization, each loaded once."""
    directory = tmp_path_factory.mktemp("models")
    models: dict[str, Model] = {}

    def one(arch: str = "llama", quant: str = "F32") -> Model:
        name = f"{arch}-{quant}"
        if name not in models:
            path = write_tiny_gguf(directory / f"{name}.gguf", arch=arch, quant=quant)
            models[name] = Model(path)
        return models[name]

    yield one
    for model in models.values():
        model.close()


@pytest.fixture
def context(load: Load) -> Iterator[Context]:
    """Two sequences of 64 tokens of the dense model."""
    made = Context(load(), n_ctx=64, max_sequences=2, threads=1)
    yield made
    made.close()


def rows(tokens: Sequence[int], start: int = 0, sequence: int = 0, all: bool = False) -> list[Row]:
    """The tokens from `start` on as rows; logits of the last one, or of all."""
    last = len(tokens) - 1
    return [
        Row(sequence, i, token, all or i == last) for i, token in enumerate(tokens) if i >= start
    ]


def fresh(model: Model, tokens: Sequence[int], n_ctx: int = 256) -> Logits:
    """The logits after `tokens`, decoded one by one in a context of their own."""
    context = Context(model, n_ctx=n_ctx, threads=1)
    for at in range(len(tokens)):
        logits = context.decode(rows(tokens[: at + 1], at))
    last: Logits = logits[0].copy()
    context.close()
    return last


tokens = st.integers(5, 299)
programs = st.lists(
    st.one_of(
        st.tuples(
            st.just("decode"),
            st.dictionaries(
                st.integers(0, SEQUENCES - 1), st.lists(tokens, min_size=1, max_size=12), min_size=1
            ),
        ),
        st.tuples(st.just("rewind"), st.integers(0, SEQUENCES - 1), st.floats(0, 1)),
        st.tuples(
            st.just("copy"),
            st.integers(0, SEQUENCES - 1),
            st.integers(0, SEQUENCES - 1),
            st.floats(0, 1),
        ),
        st.tuples(st.just("drop"), st.integers(0, SEQUENCES - 1)),
    ),
    max_size=12,
)


class Told:
    """Runs programs on a context and keeps what it was told of each sequence."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.held: list[list[int]] = [[] for _ in range(SEQUENCES)]
        for sequence in range(SEQUENCES):
            context.drop(sequence)

    def run(self, program: Sequence[tuple]) -> None:
        for name, *arguments in program:
            getattr(self, name)(*arguments)
            lengths = [self.context.length(sequence) for sequence in range(SEQUENCES)]
            assert lengths == list(map(len, self.held))

    def decode(self, new: dict[int, list[int]]) -> None:
        wanted: list[Row] = []
        for sequence, more in new.items():
            whole = self.held[sequence] + more
            wanted += rows(whole, len(self.held[sequence]), sequence)
            self.held[sequence] = whole
        assert len(self.context.decode(wanted)) == len(new)

    def rewind(self, sequence: int, share: float) -> None:
        length = int(share * len(self.held[sequence]))
        try:
            self.context.rewind(sequence, length)
        except CannotRewindError:
            assert self.context._window, "a dense model rewinds"
            assert self.context.length(sequence) == len(self.held[sequence]), "nothing changed"
            self.drop(sequence)  # what the scheduler does
        else:
            del self.held[sequence][length:]

    def copy(self, source: int, destination: int, share: float) -> None:
        length = int(share * len(self.held[source]))
        try:
            self.context.copy_prefix(source, destination, length)
        except CannotRewindError:
            assert self.context._window, "a dense model copies"
        else:
            self.held[destination] = self.held[source][:length]

    def drop(self, sequence: int) -> None:
        self.context.drop(sequence)
        self.held[sequence] = []


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_any_program_leaves_what_a_fresh_context_would_hold(arch: str, load: Load) -> None:
    model = load(arch)
    context = Context(model, n_ctx=160, max_sequences=SEQUENCES, threads=1)

    @given(program=programs, last=tokens)
    @settings(max_examples=120, deadline=None)
    def check(program: list[tuple], last: int) -> None:
        told = Told(context)
        told.run(program)
        for sequence, held in enumerate(told.held):
            got = context.decode(rows([*held, last], len(held), sequence))[0]
            assert np.abs(got - fresh(model, [*held, last])).max() < TOLERANCE

    try:
        check()
    finally:
        context.close()


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
@pytest.mark.parametrize("quant", ["Q8_0", "Q4_0"])
def test_a_sequence_alone_is_bit_identical_to_a_fresh_one(
    arch: str, quant: str, load: Load
) -> None:
    """This is what exact mode rests on."""
    model = load(arch, quant)
    context = Context(model, n_ctx=200, threads=1)
    if probe_widths(context, model.vocabulary).widest_run < 9:
        context.close()
        pytest.skip("this machine's kernels do not give identical results up to width 9")
    pieces = st.lists(
        st.tuples(st.lists(tokens, min_size=1, max_size=9), st.floats(0, 1)), max_size=12
    )

    @given(pieces=pieces, last=tokens)
    @settings(max_examples=60, deadline=None)
    def check(pieces: list[tuple[list[int], float]], last: int) -> None:
        context.drop(0)
        held: list[int] = []
        for more, share in pieces:
            context.decode(rows(held + more, len(held)))
            held = (held + more)[: len(held) + math.ceil(share * len(more))]
            context.rewind(0, len(held))
        got = context.decode(rows([*held, last], len(held)))[0]
        assert np.array_equal(got, fresh(model, [*held, last], 200))

    try:
        check()
    finally:
        context.close()


def test_a_window_that_moved_on_refuses_the_rewind(load: Load) -> None:
    """llama.cpp gives away cells behind the window when it looks for room elsewhere."""
    model = load("gemma3")
    context = Context(model, n_ctx=100, max_sequences=2, threads=1)
    one, long = list(range(50, 60)), list(range(100, 160))
    context.decode(rows(one, sequence=1))
    context.decode(rows(long[:40]))
    context.drop(1)  # the search for room starts at the front from now on
    context.decode(rows(long, 40))
    with pytest.raises(CannotRewindError, match=f"window of {WINDOW} tokens has moved on"):
        context.rewind(0, 5)
    assert context.length(0) == len(long)
    with pytest.raises(CannotRewindError):
        context.copy_prefix(0, 1, 5)
    context.rewind(0, len(long) - 3)  # a rejected draft
    got = context.decode(rows([*long[:-3], 77], len(long) - 3))[0]
    assert np.abs(got - fresh(model, [*long[:-3], 77])).max() < TOLERANCE
    context.close()


def test_a_window_alone_in_memory_can_be_rewound_to_anywhere(load: Load) -> None:
    model = load("gemma3")
    context = Context(model, n_ctx=600, threads=1, max_rows=32)
    text = [5 + i % 290 for i in range(576)]
    for start in range(0, 576, 32):
        context.decode(rows(text[: start + 32], start))
    for length in (200, 30, WINDOW, 3):
        context.rewind(0, length)
        got = context.decode(rows([*text[:length], 77], length))[0]
        assert np.abs(got - fresh(model, [*text[:length], 77])).max() < TOLERANCE
        context.rewind(0, length)
    context.close()


@pytest.mark.parametrize("arch", ["mamba", "lfm2"])
def test_recurrent_models_refuse_rewinds_and_change_nothing(arch: str, load: Load) -> None:
    model = load(arch)
    context = Context(model, n_ctx=64, max_sequences=2, threads=1)
    assert context.rewind_depth == 0
    text = [50, 60, 70, 80, 90]
    context.decode(rows(text))
    for length in (1, 4):
        with pytest.raises(CannotRewindError, match="recurrent"):
            context.rewind(0, length)
        with pytest.raises(CannotRewindError, match="recurrent"):
            context.copy_prefix(0, 1, length)
    context.rewind(0, 5)
    context.copy_prefix(0, 1, 5)
    for sequence in (0, 1):
        got = context.decode(rows([*text, 9], 5, sequence))[0].copy()
        assert np.abs(got - fresh(model, [*text, 9])).max() < TOLERANCE
    context.rewind(0, 0)
    assert context.length(0) == 0
    got = context.decode(rows([50, 61]))[0]
    assert np.abs(got - fresh(model, [50, 61])).max() < TOLERANCE
    context.close()


def test_a_dense_model_rewinds_without_limit(context: Context) -> None:
    assert context.rewind_depth == math.inf


@pytest.mark.parametrize("length", [4, 400, -1])
def test_rewinding_to_what_is_not_held(length: int, context: Context) -> None:
    context.decode(rows([7, 8, 9]))
    with pytest.raises(CannotRewindError, match=f"holds 3 tokens and cannot be cut to {length}"):
        context.rewind(0, length)
    with pytest.raises(CannotRewindError):
        context.copy_prefix(0, 1, length)
    assert context.length(0) == 3


def test_a_sequence_copied_onto_itself_is_cut(context: Context) -> None:
    context.decode(rows([7, 8, 9]))
    context.copy_prefix(0, 0, 2)
    assert context.length(0) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        [Row(0, 3, 9, True)],
        [Row(0, 1, 9, True)],
        [Row(0, 0, 9, True)],
        [Row(0, 2, 9, True), Row(0, 4, 9, True)],
        [Row(0, 3, 9, True), Row(0, 2, 9, True)],
        [Row(0, 2, 9, True), Row(0, 2, 9, True)],
        [Row(1, 1, 9, True)],
        [Row(0, 2, 9, True), Row(1, 5, 9, True)],
        [Row(0, 2, 300, True)],
        [Row(0, 2, -1, True)],
    ],
)
def test_rows_that_make_no_sense_are_refused(wrong: list[Row], context: Context) -> None:
    context.decode(rows([7, 8]))
    with pytest.raises(BackendError) as caught:
        context.decode(wrong)
    assert "\n" not in str(caught.value)
    assert (context.length(0), context.length(1)) == (2, 0)
    context.decode(rows([7, 8, 9], 2))


@pytest.mark.parametrize("sequence", [-1, 2, 256, 10_000])
def test_a_sequence_that_does_not_exist(sequence: int, context: Context) -> None:
    context.decode(rows([7, 8]))
    uses: list[Callable[[], object]] = [
        lambda: context.decode([Row(sequence, 0, 7, True)]),
        lambda: context.rewind(sequence, 0),
        lambda: context.drop(sequence),
        lambda: context.copy_prefix(0, sequence, 1),
        lambda: context.copy_prefix(sequence, 0, 0),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="there is no sequence"):
            use()
    assert context.length(0) == 2


def test_more_rows_than_a_pass_takes(load: Load) -> None:
    context = Context(load(), n_ctx=400, threads=1, max_rows=300)
    assert context.max_rows == 300
    for wrong in ([], rows([7] * 301)):
        with pytest.raises(ValueError, match="1 to 300 rows"):
            context.decode(wrong)
    context.decode(rows([7] * 300))
    context.close()


def test_a_pass_never_takes_more_than_the_context(load: Load) -> None:
    """llama.cpp would abort the process."""
    context = Context(load(), n_ctx=20, max_sequences=2, threads=1)
    assert context.max_rows == 20
    with pytest.raises(ValueError, match="1 to 20 rows"):
        context.decode(rows([7] * 300))
    context.close()


def test_more_logits_than_a_pass_gives(load: Load) -> None:
    """llama.cpp would abort the process."""
    context = Context(load(), n_ctx=200, threads=1)
    with pytest.raises(ValueError, match=f"logits of {MAX_WIDTH} rows"):
        context.decode(rows([7] * (MAX_WIDTH + 1), all=True))
    assert context.decode(rows([7] * MAX_WIDTH, all=True)).shape == (MAX_WIDTH, 300)
    context.close()


def test_a_full_memory_is_an_error(load: Load) -> None:
    context = Context(load(), n_ctx=256, threads=1)
    context.decode(rows([7] * 256))
    with pytest.raises(NoRoomError, match="no free cells"):
        context.decode(rows([7] * 257, 256))
    context.close()


# Memory is one for all sequences.


def assert_next(context: Context, model: Model, texts: Sequence[Sequence[int]]) -> None:
    """Each sequence goes on from its text, as in a context of its own."""
    for sequence, text in enumerate(texts):
        got = context.decode(rows([*text, 77], len(text), sequence))[0]
        assert np.abs(got - fresh(model, [*text, 77])).max() < TOLERANCE


def texts_of(*lengths: int) -> list[list[int]]:
    return [[10 + (7 * i + 31 * at) % 250 for i in range(n)] for at, n in enumerate(lengths)]


@pytest.mark.parametrize("arch", ["llama", "gemma3", "lfm2"])
def test_where_all_together_find_no_room_memory_stays_as_it_was(arch: str, load: Load) -> None:
    model = load(arch)
    context = Context(model, n_ctx=256, max_sequences=2, threads=1)
    one, two = texts_of(150, 100)
    context.decode(rows(one))
    context.decode(rows(two, sequence=1))
    wide = rows([*one, *[7] * 7], 150)
    both = rows([*one, *[7] * 4], 150) + rows([*two, *[7] * 4], 100, 1)
    for more in (wide, both):
        with pytest.raises(NoRoomError, match="no free cells"):
            context.decode(more)
        assert (context.length(0), context.length(1)) == (150, 100)
    assert_next(context, model, [one, two])
    assert (context.length(0), context.length(1)) == (151, 101)
    context.drop(1)
    context.decode(rows([*one, 77, *[7] * 100], 151))
    assert context.length(0) == 251
    context.close()


@pytest.mark.parametrize("arch", ["llama", "gemma3", "lfm2"])
def test_a_copied_prefix_goes_on_in_both_and_takes_no_room(arch: str, load: Load) -> None:
    model = load(arch)
    context = Context(model, n_ctx=256, max_sequences=3, threads=1)
    (text,) = texts_of(200)
    context.decode(rows(text))
    length = 200 if context.rewind_depth == 0 else 180
    context.copy_prefix(0, 1, length)
    one, two = [*text, *[21] * 20], [*text[:length], *[22] * 20]
    context.decode(rows(one, 200) + rows(two, length, 1))  # 400 tokens and more in 256 cells
    assert (context.length(0), context.length(1)) == (220, length + 20)
    assert_next(context, model, [one, two])
    context.drop(0)  # what they share is not given away
    got = context.decode(rows([*two, 77, 78], len(two) + 1, 1))[0]
    assert np.abs(got - fresh(model, [*two, 77, 78])).max() < TOLERANCE
    context.close()


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_requests_that_do_not_fit_together_take_turns(arch: str, load: Load) -> None:
    """The whole loop on llama.cpp: whatever was parked, dropped, copied and read again, every
    token is the best one (but for ties) in a context of its own."""
    model = load(arch)
    context = Context(model, n_ctx=256, max_sequences=3, threads=1)
    scheduler = Scheduler(context, {"n-gram": NgramDrafter()}, Fixed(3, "n-gram"), Ticks())
    start = texts_of(70)[0]
    prompts = [[*start, *text] for text in texts_of(20, 5, 30, 9, 0)]
    requests = [
        Request(id=i, prompt=tuple(p), params=GREEDY, max_tokens=90, ends=lambda token: False)
        for i, p in enumerate(prompts)
    ]
    steps = run(scheduler, *requests)
    for one in requests:
        assert len(emitted(steps[one.id])) == 90
        assert_best(model, one.prompt, emitted(steps[one.id]))
    for slot, held in scheduler.slots.held.items():
        assert context.length(slot) == len(held)
    assert any(sum(s.prefilled for s in its) > len(prompts[i]) for i, its in steps.items())
    assert any(its[0].cached >= 70 for its in steps.values())
    context.close()


def assert_best(model: Model, prompt: Sequence[int], answer: Sequence[int]) -> None:
    """Each token of a greedy answer, after the ones before it."""
    context = Context(model, n_ctx=256, threads=1)
    text = [*prompt, *answer]
    logits = context.decode(rows(prompt))[0]
    for at, token in enumerate(answer, len(prompt)):
        assert logits[token] > logits.max() - TOLERANCE
        logits = context.decode(rows(text[: at + 1], at))[0]
    context.close()


def test_logits_of_the_wanted_rows_in_order(context: Context, load: Load) -> None:
    one, two = [11, 12, 13, 14], [21, 22, 23]
    mixed = [
        Row(0, 0, 11, False),
        Row(1, 0, 21, True),
        Row(0, 1, 12, True),
        Row(0, 2, 13, False),
        Row(1, 1, 22, False),
        Row(1, 2, 23, True),
        Row(0, 3, 14, True),
    ]
    got = context.decode(mixed)
    assert got.shape == (4, 300)
    assert got.dtype == np.float32
    for row, wanted in zip(got, (two[:1], one[:2], two, one), strict=True):
        assert np.abs(row - fresh(load(), wanted)).max() < TOLERANCE


def test_no_logits_wanted(context: Context) -> None:
    assert context.decode([Row(0, 0, 7, False), Row(0, 1, 8, False)]).shape == (0, 300)
    assert context.length(0) == 2


def test_abort_interrupts_a_running_pass(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load()
    context = Context(model, n_ctx=1200, threads=1, max_rows=1000)
    context.decode(rows([7, 8, 9]))
    long = rows([7, 8, 9] + [10 + i % 200 for i in range(997)], 3)
    decode, running = llama_cpp.llama_decode, threading.Event()
    interrupted = 0

    def announced(*arguments: object) -> int:
        running.set()
        code: int = decode(*arguments)
        running.clear()
        return code

    monkeypatch.setattr(llama_cpp, "llama_decode", announced)

    def abort() -> None:
        nonlocal interrupted
        running.wait()
        context.abort()
        interrupted += running.is_set()

    for _ in range(100):  # a pass may end before the other thread gets its turn
        thread = threading.Thread(target=abort)
        thread.start()
        try:
            context.decode(long)
        except DecodeAbortedError:
            pass
        else:
            interrupted = 0
        thread.join()
        with pytest.raises(DecodeAbortedError):
            context.decode(rows([7, 8, 9, 5], 3) if context.length(0) == 3 else _next(context))
        context.allow()
        context.rewind(0, 3)
        if interrupted:
            break
    assert interrupted
    assert context.length(0) == 3
    got = context.decode(rows([7, 8, 9, 77], 3))[0]
    assert np.abs(got - fresh(model, [7, 8, 9, 77])).max() < TOLERANCE
    context.close()


def _next(context: Context) -> list[Row]:
    return [Row(0, context.length(0), 5, True)]


TOO_LARGE = """
import resource, sys
from pathlib import Path
from edgespec.errors import ModelLoadError
from edgespec.llama.context import Context
from edgespec.llama.model import Model

model = Model(Path(sys.argv[1]))
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), -1))
for n_ctx in (2**20, 2**22, 2**24):
    try:
        Context(model, n_ctx=n_ctx, threads=1)
    except ModelLoadError as error:
        print(error)
Context(model, n_ctx=64, threads=1).close()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the memory as Linux does")
def test_a_context_too_large_for_the_memory(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    done = subprocess.run(
        [sys.executable, "-c", TOO_LARGE, str(path)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("No context of ")
        assert line.endswith("Try a smaller --ctx.")
        assert "gave no reason" not in line


@pytest.mark.parametrize("n_ctx", [2**31, 2**32, 2**33 + 64])
def test_a_context_beyond_what_llama_cpp_counts(n_ctx: int, load: Load) -> None:
    """The number would wrap, and the context be small."""
    with pytest.raises(ModelLoadError, match="counts to"):
        Context(load(), n_ctx=n_ctx, threads=1)


def test_close_twice_and_use_after_close(load: Load) -> None:
    context = Context(load(), n_ctx=64, max_sequences=2, threads=1)
    context.decode(rows([7, 8]))
    context.close()
    context.close()
    uses: list[Callable[[], object]] = [
        lambda: context.decode(rows([7, 8, 9], 2)),
        lambda: context.rewind(0, 1),
        lambda: context.length(0),
        lambda: context.copy_prefix(0, 1, 1),
        lambda: context.drop(0),
    ]
    for use in uses:
        with pytest.raises(EdgespecError, match="closed"):
            use()
    context.abort()
    context.allow()
