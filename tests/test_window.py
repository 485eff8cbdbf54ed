# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
import gc
import io
import os
import pickle
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from megatron.energon.errors import FatalSampleError
from window_parts import build, decode, loader_of, measure, read, source_of, told

from energon_pack.candidate import Candidate, Medium, Refused
from energon_pack.refusal import SampleError

# The grid goes up to more workers than a small machine has cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

GRID = [
    pytest.param(0, [40], 1, id="in-process"),
    pytest.param(0, [40], 8, id="shuffled"),
    pytest.param(2, [16, 7], 1, id="one-worker-ends-first"),
]
WHOLE_GRID = [
    pytest.param(workers, [size + 5 * w for w in range(max(workers, 1))], shuffle)
    for workers in (0, 1, 2, 4)
    for size, shuffle in ((3, 1), (9, 1), (9, 8))
]
POLICY_NAMES = ["window", "first_fit_decreasing", "sequential", "none"]


def packed_and_lost(packs, dataset):
    lost = Counter()
    for pack in packs:
        lost.update(pack["pack_info"].stream.skipped)
    for record in dataset.ledger.read():
        lost.update(record.pending)
    return [key for pack in packs for key in pack["__keys__"]], lost


def assert_resumes_at_every_pack(workers, per_worker, shuffle, **values):
    loader = loader_of(build(per_worker, workers=workers, shuffle=shuffle, **values))
    packs, states = [], []
    for pack in loader:
        packs.append(told(pack))
        states.append(loader.save_state())
    assert packs
    for done, state in enumerate(states, start=1):
        dataset = build(per_worker, workers=workers, shuffle=shuffle, **values)
        rest = [told(pack) for pack in read(loader_of(dataset), state)]
        assert rest == packs[done:], f"after {done} of {len(packs)} packs"


@pytest.mark.parametrize(("workers", "per_worker", "shuffle"), GRID)
def test_resume_is_exact_at_every_pack_of_a_finite_pass(workers, per_worker, shuffle):
    assert_resumes_at_every_pack(workers, per_worker, shuffle)


@pytest.mark.full
@pytest.mark.parametrize(("workers", "per_worker", "shuffle"), WHOLE_GRID)
def test_resume_is_exact_with_any_number_of_workers(workers, per_worker, shuffle):
    assert_resumes_at_every_pack(workers, per_worker, shuffle)


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_resume_is_exact_for_every_policy(policy):
    assert_resumes_at_every_pack(0, [40], 1, packing_policy=policy)


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_is_lost_or_repeated_across_kill_9(tmp_path, workers):
    program = f"""
import os, pickle, signal, sys
from window_parts import build, loader_of
loader = loader_of(build([40, 25][:max({workers}, 1)], workers={workers}))
state = sys.stdin.buffer.read()
if state:
    loader.restore_state(pickle.loads(state))
packs = []
for number, pack in enumerate(loader, start=1):
    packs.append((pack["__keys__"], pack["pack_info"].stream.skipped))
    if number == 4 and not state:
        sys.stdout.buffer.write(pickle.dumps((packs, loader.save_state())))
        sys.stdout.flush()
    if number == 6 and not state:
        os.kill(os.getpid(), signal.SIGKILL)
sys.stdout.buffer.write(pickle.dumps((packs, None)))
"""

    def run(state):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        output = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            input=state,
            stdout=subprocess.PIPE,
            check=bool(state),
            env=environment,
        ).stdout
        return pickle.loads(output)

    first, state = run(b"")
    rest, _ = run(pickle.dumps(state))
    whole = read(loader_of(build([40, 25][: max(workers, 1)], workers=workers)))
    assert len(first) == 4
    assert [keys for keys, _ in first + rest] == [pack["__keys__"] for pack in whole]
    assert [s for _, s in first + rest] == [p["pack_info"].stream.skipped for p in whole]


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_every_sample_of_a_pass_is_packed_once_or_counted_as_lost(policy):
    dataset = build([60], packing_policy=policy)
    packed, lost = packed_and_lost(read(loader_of(dataset)), dataset)
    numbers = range(60)
    refused = {n for n in numbers if n % 17 == 5}
    broken = {n for n in numbers if n % 13 == 7} - refused
    assert sorted(packed) == sorted(f"0/{n}" for n in set(numbers) - refused - broken)
    assert lost == {"bad_image": len(refused), "decode_failed": len(broken)}


def test_losses_after_the_last_pack_reach_the_side_file():
    def measure_first_only(sample):
        candidate = measure(sample)
        if candidate.__key__ != "0/0":
            return Refused(
                __key__=candidate.__key__, __restore_key__=(), cause="no_target", message="none"
            )
        return candidate

    dataset = build([9, 4], workers=2, measure=measure_first_only)
    packs = read(loader_of(dataset))
    assert [pack["__keys__"] for pack in packs] == [["0/0"]]
    first, second = dataset.ledger.read()
    assert packs[0]["pack_info"].stream.skipped == first.lost == {"no_target": 8}
    assert (first.pending, first.ended, first.packs) == ({}, True, 1)
    assert (second.pending, second.ended, second.packs) == ({"no_target": 4}, True, 0)
    assert second.examples["no_target"] == ["1/3", None, "none"]


def test_iterating_again_after_a_resumed_end_starts_the_next_pass():
    loader = loader_of(build([20]))
    packs = read(loader)
    again = loader_of(build([20]))
    assert read(again, loader.save_state()) == []
    assert [p["__keys__"] for p in again] == [p["__keys__"] for p in packs]


def test_no_candidate_waits_longer_than_the_buffer_is_big():
    packs = read(loader_of(build([400], decode=lambda candidate: candidate)))
    leaves = {key: index for index, pack in enumerate(packs) for key in pack["__keys__"]}
    numbers = sorted(int(key.split("/")[1]) for key in leaves)
    enters = {}
    taken = 0
    for index, pack in enumerate(packs):
        for number in numbers[: taken + 6]:
            enters.setdefault(f"0/{number}", index)
        taken += len(pack["__keys__"])
    assert max(leaves[key] - enters[key] for key in leaves) < 6


def test_a_pack_whose_members_all_break_is_not_sent():
    def always_break_longest(candidate):
        if candidate.length > 60:
            raise SampleError("decode_failed", "too long to be true")
        return candidate

    packs = read(loader_of(build([60], decode=always_break_longest, packing_policy="none")))
    assert packs
    assert all(pack["pack_info"].samples == 1 for pack in packs)


def test_an_unexpected_error_costs_one_sample_and_is_counted():
    def fail_once(candidate):
        if candidate.__key__ == "0/3":
            raise MemoryError("bomb")
        return candidate

    dataset = build([30], decode=fail_once)
    packed, lost = packed_and_lost(read(loader_of(dataset)), dataset)
    assert "0/3" not in packed
    assert lost["unexpected"] == 1


def test_a_fault_of_the_program_is_not_a_lost_sample():
    def unimportable(candidate):
        raise ImportError("no module named av")

    with pytest.raises(ImportError, match="av"):
        read(loader_of(build([30], decode=unimportable)))


def test_a_sample_that_fits_no_pack_is_counted_and_its_neighbours_are_packed():
    dataset = build([60], seq_length=70)
    packed, lost = packed_and_lost(read(loader_of(dataset)), dataset)
    longer = sum(
        isinstance(c := measure({"__key__": f"0/{n}", "__restore_key__": ()}), Candidate)
        and c.length > 70
        for n in range(60)
    )
    assert longer
    assert lost["overlong"] == longer
    assert len(packed) + lost.total() == 60


def test_on_overlong_error_names_the_sample():
    with pytest.raises(FatalSampleError, match=r"0/\d+"):
        read(loader_of(build([60], seq_length=70, on_overlong="error")))


@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_but_refusals_stops_the_run_with_the_causes(workers):
    def refuse(sample):
        return Refused(
            __key__=sample["__key__"], __restore_key__=(), cause="bad_video", message="no moov atom"
        )

    loader = loader_of(build([50], workers=workers, measure=refuse, max_consecutive_skips=20))
    with pytest.raises(FatalSampleError, match=r"(?s)21 samples.*21  bad_video.*no moov atom"):
        read(loader)


def test_nothing_but_broken_media_stops_the_run():
    def broken(candidate):
        raise SampleError("decode_failed", "no frames")

    with pytest.raises(FatalSampleError, match="decode_failed"):
        read(loader_of(build([99], decode=broken, max_consecutive_skips=20)))


def test_skips_between_good_samples_never_stop_the_run():
    assert read(loader_of(build([300], max_consecutive_skips=1)))


def test_a_candidate_that_became_unreadable_is_lost_and_the_rest_goes_on():
    loader = loader_of(build([40], decode=lambda candidate: candidate))
    packs = [next(it) for it in [iter(loader)] for _ in range(3)]
    state = loader.save_state()
    window_state = state["position"].worker_states[0]
    while "candidates" not in window_state:
        window_state = window_state["datasets"][0]
    key, restore_key = window_state["candidates"][0]
    dataset = build([40], decode=lambda candidate: candidate)
    source_of(dataset).unreadable.add(restore_key[-2:])
    rest = read(loader_of(dataset), state)
    packed = [k for pack in packs + rest for k in pack["__keys__"]]
    lost = sum((Counter(p["pack_info"].stream.skipped) for p in packs + rest), Counter())
    assert key not in packed
    assert lost["unreadable_on_resume"] == 1
    assert len(packed) == len(set(packed)) == 40 - lost.total()


def test_a_shuffled_sample_that_became_unreadable_does_not_make_the_state_unloadable():
    loader = loader_of(build([40], shuffle=10))
    first = next(iter(loader))
    state = loader.save_state()
    dataset = build([40], shuffle=10)
    source_of(dataset).unreadable.update((0, n) for n in range(40))
    rest = read(loader_of(dataset), state)
    lost = sum((Counter(p["pack_info"].stream.skipped) for p in [first, *rest]), Counter())
    assert rest
    assert lost["unreadable_on_resume"] >= 10


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pack_can_be_built_again_from_its_key(workers):
    packs = read(loader_of(build([40, 40][: max(workers, 1)], workers=workers)))
    again = build([40, 40][: max(workers, 1)], workers=workers)
    assert again.can_restore_sample()
    loader = loader_of(again)
    for pack in packs:
        restored = loader.restore_sample(pack["__restore_key__"])
        assert restored["__keys__"] == pack["__keys__"]
        assert restored["input_ids"].tolist() == pack["input_ids"].tolist()
        assert restored["pack_info"].tokens == pack["pack_info"].tokens


def with_picture(sample):
    number = int(sample["__key__"].split("/")[1])
    medium = Medium(
        kind="image",
        data=bytes([number]) * 1000,
        height=2,
        width=2,
        resized=(2, 2),
        grid=(1, 2, 2),
    )
    return Candidate(
        __key__=sample["__key__"],
        __restore_key__=sample["__restore_key__"],
        ids=np.zeros(20 + number % 9, np.int32),
        trained=np.ones(20 + number % 9, bool),
        media=(medium,),
        visual_tokens=1,
    )


@pytest.mark.parametrize(("limit", "most"), [("3500B", 4), ("10B", 1)])
def test_media_bytes_limit_the_window_but_one_candidate_is_always_let_in(limit, most):
    packs = read(loader_of(build([30], measure=with_picture, packing_buffer_bytes=limit)))
    infos = [pack["pack_info"] for pack in packs]
    assert max(info.samples + info.stream.candidates for info in infos) == most
    assert all(info.stream.buffer_bytes == 1000 * info.stream.candidates for info in infos)


@pytest.mark.parametrize("workers", [0, 1])
def test_spilled_media_come_back_with_their_pack_and_leave_no_file(tmp_path, workers):
    def check_picture(candidate):
        number = int(candidate.__key__.split("/")[1])
        assert candidate.media[0].data == bytes([number]) * 1000
        return candidate

    parts = {"measure": with_picture, "decode": check_picture, "workers": workers}
    plain = read(loader_of(build([30], **parts)))
    folder = tmp_path / "new"
    dataset = build([30], spill_dir=str(folder), **parts)
    packs = read(loader_of(dataset))
    assert [told(pack) for pack in packs] == [told(pack) for pack in plain]
    assert all(pack["pack_info"].stream.buffer_bytes == 0 for pack in packs)
    spilled = [path for path in folder.rglob("*") if path.is_file()]
    assert [path.name for path in spilled] == ["in-use"]
    del dataset
    gc.collect()
    assert not list(folder.iterdir())


def test_the_state_is_plain_and_small_at_buffer_64():
    loader = loader_of(build([2000], packing_buffer_size=64, shuffle=100))
    iterator = iter(loader)
    for _ in range(30):
        next(iterator)
    state = loader.save_state()["position"].worker_states[0]
    plain = {"builtins", "megatron.energon.state", "collections"}

    class Plain(pickle.Unpickler):
        def find_class(self, module, name):
            assert module in plain, f"{module}.{name}"
            return super().find_class(module, name)

    text = pickle.dumps(state)
    assert Plain(io.BytesIO(text)).load() == state
    assert len(text) < 100_000


def test_decode_is_not_called_for_waiting_candidates_on_resume():
    loader = loader_of(build([60]))
    iterator = iter(loader)
    next(iterator)
    state = loader.save_state()
    decoded = []

    def watching(candidate):
        decoded.append(candidate.__key__)
        return decode(candidate)

    again = loader_of(build([60], decode=watching))
    again.restore_state(state)
    pack = next(iter(again))
    assert set(pack["__keys__"]) <= set(decoded)
    assert len(decoded) < 6
