# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Public reports of faults in this kind of software, each tried here as a small input.

``row_1`` to ``row_26`` are the rows of the table in ``docs/hard-inputs.md``; row 19 goes on in
``tests/integration/test_hard_inputs.py``.
"""

import json
import pickle
import re
from collections import Counter
from contextlib import suppress

import numpy as np
import psutil
import pytest
import torch
from hard_parts import JPEG, chat, good, loader_of, of_length, one_pass, segments, write
from lengths.media_parts import clip, encode, frames, picture
from lengths.oracle import assert_same, exchange, frames_as_video, measured, processed, raw, refused
from megatron.energon import WorkerConfig
from PIL import Image

from energon_pack import ConfigError
from energon_pack.alignment import ParallelShape, required_multiple
from energon_pack.cli import main
from energon_pack.config import PackingConfig
from energon_pack.demo.train import compare, tiny_model
from energon_pack.family import load_family
from energon_pack.loader import SamplesError
from energon_pack.memory import read_process
from energon_pack.reading.prepared import DatasetError
from energon_pack.resume import ResumeError
from energon_pack.verify import pack_hash

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

FRAMES = [encode(Image.fromarray(pixels)) for pixels in frames(20, 64, 64)]


def test_row_1_positions_in_a_pack_are_those_of_each_sample_alone(qwen3, tmp_path):
    folder = write(tmp_path / "data", [good(1), good(22)])
    (pack,) = one_pass(folder, qwen3).packs
    alone = one_pass(folder, qwen3, packing_policy="none").packs
    for name in ("input_ids", "labels", "position_ids"):
        found = segments(pack, name)
        assert len(found) == 2
        assert all(map(torch.equal, found, [single[name] for single in alone]))
    assert segments(pack, "position_ids")[1][:, 0, 0].tolist() == [0, 0, 0]


def test_row_2_padding_is_a_segment_without_loss_and_has_no_twin(qwen3, tmp_path):
    folder = write(tmp_path / "data", [of_length(qwen3, 50), of_length(qwen3, 60)])
    (plain,) = one_pass(folder, qwen3, seq_length=128).packs
    (full,) = one_pass(folder, qwen3, seq_length=128, fixed_width="always").packs
    assert plain["cu_seqlens_q"].tolist() == [0, 50, 110]
    assert full["cu_seqlens_q"].tolist() == [0, 50, 110, 128]
    assert not [name for name in full if "padded" in name]
    assert not full["loss_mask"][0, 110:].any()
    for name in ("input_ids", "labels", "position_ids"):
        assert torch.equal(full[name][..., :110], plain[name])
    context_2 = required_multiple(ParallelShape(context=2))
    with pytest.raises(ConfigError, match="698, no multiple of alignment 4; set 696 or 700"):
        PackingConfig(path="x", model="x", seq_length=698, alignment=context_2)
    (aligned,) = one_pass(folder, qwen3, seq_length=128, alignment=context_2).packs
    assert aligned["cu_seqlens_q"].tolist() == [0, 52, 112]
    assert torch.equal(segments(aligned, "labels")[0][..., :50], segments(plain, "labels")[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_row_3_a_run_goes_on_with_the_next_pack(workers, qwen3, tmp_path):
    folder = write(tmp_path / "data", [good(at) for at in range(30)], split="train")
    settings = {"num_workers": workers, "seq_length": 200}
    packs = iter(loader := loader_of(folder, qwen3, **settings))
    for _ in range(7):
        next(packs)
    state = loader.save_state()
    expected = [pack_hash(next(packs)) for _ in range(5)]
    again = loader_of(folder, qwen3, **settings)
    again.restore_state(state)
    packs = iter(again)
    assert [pack_hash(next(packs)) for _ in range(5)] == expected
    with pytest.raises(ResumeError, match="no loader state"):
        loader_of(folder, qwen3, **settings).restore_state(None)


def test_row_4_a_state_of_another_data_parallel_size_is_refused_with_both(qwen3, tmp_path):
    folder = write(tmp_path / "data", [good(at) for at in range(8)], split="train")
    ranks = [WorkerConfig(rank=0, world_size=size, num_workers=0) for size in (2, 1)]
    two, one = (loader_of(folder, qwen3, worker_config=rank) for rank in ranks)
    next(iter(two))
    with pytest.raises(ResumeError, match=r"data_parallel_size +2 +1"):
        one.restore_state(two.save_state())


def test_row_5_with_a_resume_after_every_pack_each_key_comes_once(qwen3, tmp_path):
    folder = write(tmp_path / "data", [good(at) for at in range(20)])
    loader, keys = loader_of(folder, qwen3, "val", seq_length=200), Counter()
    while pack := next(iter(loader), None):
        keys.update(pack["__keys__"])
        state = loader.save_state()
        loader = loader_of(folder, qwen3, "val", seq_length=200)
        loader.restore_state(state)
    assert keys == Counter(f"{at:03d}" for at in range(20))


@pytest.mark.parametrize(
    ("samples", "side"),
    [(40, 480), pytest.param(300, 2000, marks=[pytest.mark.full, pytest.mark.timeout(900)])],
)
def test_row_6_waiting_candidates_hold_compressed_bytes(samples, side, processors, tmp_path):
    image = encode(picture(side, side + 160))
    sample = {"json": chat("<image>" * 4), "jpgs": pickle.dumps([image] * 4)}
    folder = write(tmp_path / "data", [sample] * samples)
    settings = {"num_workers": 2, "packing_buffer_size": 16, "max_pixels": 400_000}
    family = load_family(str(processors["qwen3_vl"]), max_pixels=400_000)
    held, decoded = {}, 4 * 3 * side * (side + 160)
    for pack in loader_of(folder, family, "val", seq_length=2048, **settings):
        stream = pack["pack_info"].stream
        assert stream.buffer_bytes == 4 * len(image) * stream.candidates
        held.setdefault(stream.worker_id, []).append(
            read_process(psutil.Process(stream.pid)).held_bytes
        )
    for series in held.values():
        warm = len(series) // 4
        assert max(series[warm:]) - series[warm] < max(2 * decoded, 32 << 20) < 16 * decoded


def test_row_7_frame_lists_keep_their_frames_and_their_time(qwen3):
    for count, patches in ((8, 4), (20, 10)):
        sample = raw({"messages": exchange("video"), "fps": 1}, videos=listed(FRAMES[:count]))
        candidate = measured(qwen3, sample)
        assert candidate.media[0].grid[0] == patches
        shown = re.findall(r"<([\d.]+) seconds>", qwen3.tokenizer.decode(candidate.ids))
        assert [float(time) for time in shown] == [2 * at + 0.5 for at in range(patches)]
    silent = raw(exchange("video"), videos=listed(FRAMES[:8]))
    assert measured(qwen3, silent).notes == ("assumed_fps",)
    assert measured(qwen3, silent, frame_list_fps=4).media[0].frame_times[-1] == 7 / 4
    assert "set frame_list_fps" in refused(qwen3, silent, frame_list_fps=None).message


def listed(*videos):
    return pickle.dumps(list(videos))


def test_row_8_each_video_has_its_own_placeholders(qwen3):
    sample = raw(
        {"messages": exchange("video", "and", "video"), "fps": 1},
        videos=listed(FRAMES[:8], FRAMES[:10]),
    )
    candidate = measured(qwen3, sample)
    assert [medium.grid[0] for medium in candidate.media] == [4, 5]
    merged = sum(medium.num_patches for medium in candidate.media) // 4
    assert np.count_nonzero(candidate.ids == qwen3.video_token_id) == merged
    assert qwen3.tokenizer.decode(candidate.ids).count("seconds>") == 4 + 5


def test_row_9_a_sample_one_token_too_long_is_dropped_whole(qwen3, tmp_path):
    two = {"json": chat("<image><image>?"), "jpgs": pickle.dumps([JPEG, JPEG])}
    length = measured(qwen3, raw(two["json"], jpgs=two["jpgs"])).length
    folder = write(tmp_path / "data", [good(1), two, good(2)])
    done = one_pass(folder, qwen3, seq_length=length - 1)
    assert done.keys == ["000", "002"]
    assert done.lost == {"overlong": 1}
    assert done.examples["overlong"][:2] == ["001", length]
    assert "001" in one_pass(folder, qwen3, seq_length=length).keys


def test_row_10_one_over_long_sample_costs_itself_only(qwen3, tmp_path):
    samples = [good(at) for at in range(16)]
    samples[5] = of_length(qwen3, 700)
    done = one_pass(write(tmp_path / "data", samples), qwen3, packing_buffer_size=16)
    assert len(done.keys) == 15
    assert done.lost == {"overlong": 1}
    key, length, message = done.examples["overlong"]
    assert (key, length) == ("005", 700)
    assert message == "it has 700 tokens, seq_length is 512"


@pytest.mark.parametrize(
    ("turns", "trained"),
    [
        ([("user", "Yes."), ("assistant", "Yes.")], "Yes.<|im_end|>\n"),
        ([("user", "a"), ("assistant", ""), ("user", "b"), ("assistant", "c")],
         "<|im_end|>\nc<|im_end|>\n"),
        ([("user", "a"), ("assistant", "b")] * 3, "b<|im_end|>\n" * 3),
    ],
)  # fmt: skip
def test_row_11_answers_their_end_and_the_newline_are_trained(turns, trained, qwen3, tmp_path):
    stored = json.dumps([{"role": role, "content": text} for role, text in turns]).encode()
    (pack,) = one_pass(write(tmp_path / "data", [{"json": stored}] * 2), qwen3).packs
    for labels in segments(pack, "labels"):
        assert qwen3.tokenizer.decode(labels[labels != -100]) == trained
        assert labels[0, -1] == -100


def test_row_12_a_finite_run_ends_with_every_sample(qwen3, tmp_path):
    folder = write(tmp_path / "data", [good(at) for at in range(10)])
    done = one_pass(folder, qwen3, packing_buffer_size=4)
    assert done.keys == [f"{at:03d}" for at in range(10)]
    assert not done.lost


def test_row_13_an_evaluation_is_the_same_each_time(qwen3, tmp_path):
    folder = write(tmp_path / "data", [good(at) for at in range(3)])
    loader = loader_of(folder, qwen3, "val", num_workers=2)
    first, second = ([pack["input_ids"].tolist() for pack in loader] for _ in range(2))
    assert first == second
    assert len(first) == 2
    train = write(tmp_path / "train", [good(at) for at in range(3)], split="train")
    with pytest.raises(DatasetError, match="has 3 samples for the 4 workers of this rank"):
        loader_of(train, qwen3, num_workers=4)
    assert one_pass(folder, qwen3, num_workers=4).keys == ["000", "001", "002"]


@pytest.mark.parametrize(
    ("broken", "cause", "workers"),
    [({"json": chat(), "jpg": b"x"}, "bad_image", 0), ({"json": chat("x" * 9000)}, "overlong", 2)],
)
def test_row_14_nothing_but_broken_samples_stops_the_run(broken, cause, workers, qwen3, tmp_path):
    folder = write(tmp_path / "data", [broken] * 4, split="train")
    loader = loader_of(folder, qwen3, max_consecutive_skips=20, num_workers=workers)
    with pytest.raises(SamplesError, match=r"^21 samples were lost in a row") as caught:
        next(iter(loader))
    assert re.search(rf"\n +21  {cause} \(.*; latest 00", str(caught.value))
    assert "Traceback" not in str(caught.value)


def test_row_15_a_picture_is_at_most_200_times_as_long_as_wide(qwen3, tmp_path):
    thin = [{"json": chat(), "png": encode(picture(1, side), "PNG")} for side in (201, 200)]
    done = one_pass(write(tmp_path / "data", thin), qwen3)
    assert done.keys == ["001"]
    assert done.lost == {"bad_size": 1}
    assert "aspect ratio must be smaller than 200, got 201" in done.examples["bad_size"][2]


def test_row_16_a_cut_picture_costs_itself_only(qwen3, tmp_path):
    whole = encode(picture(64, 64))
    for cut, cause in ((whole[:300], "bad_image"), (whole[:-60], "decode_failed")):
        samples = [good(at) for at in range(8)]
        samples[3] = {"json": chat(), "jpg": cut}
        done = one_pass(write(tmp_path / cause, samples), qwen3)
        assert len(done.keys) == 7
        assert done.lost == {cause: 1}
        assert "damaged or cut short" in done.examples[cause][2]
        assert all(pack["pack_info"].samples == len(pack["__keys__"]) > 0 for pack in done.packs)
    alone = one_pass(write(tmp_path / "alone", [{"json": chat(), "jpg": whole[:-60]}]), qwen3)
    assert not alone.packs
    assert alone.lost == {"decode_failed": 1}


@pytest.mark.parametrize("count", [1, 3, 5])
def test_row_17_short_and_odd_videos_have_the_processors_length(count, qwen3):
    pictures = frames(count, 64, 64)
    encoded = [encode(Image.fromarray(pixels), "PNG") for pixels in pictures]
    messages = exchange("video", "?")
    metadata = {"fps": 2, "total_num_frames": count, "frames_indices": list(range(count))}
    try:
        real = processed(
            qwen3, messages, videos=[frames_as_video(pictures)], video_metadata=[metadata],
            do_sample_frames=False,
        )  # fmt: skip
    except ValueError:  # transformers 5.24 takes no single frame
        assert count == 1
        assert refused(qwen3, raw(messages, videos=listed(encoded))).cause == "bad_size"
    else:
        assert_same(measured(qwen3, raw(messages, videos=listed(encoded))), real)


def test_row_18_timestamps_are_the_frames_own_times(qwen3):
    ticks = [0, 100, 200, 2000, 4000, 4100]
    candidate = measured(qwen3, raw(exchange("video"), mp4=clip(frames(6, 64, 64), ticks=ticks)))
    medium = candidate.media[0]
    assert medium.frame_times == pytest.approx([ticks[at] / 1000 for at in medium.frame_indices])
    shown = re.findall(r"<([\d.]+) seconds>", qwen3.tokenizer.decode(candidate.ids))
    times = [ticks[at] / 1000 for at in medium.frame_indices]
    times += times[-1:] * (len(times) % 2)
    pairs = zip(times[::2], times[1::2], strict=True)
    assert [float(time) for time in shown] == pytest.approx([sum(p) / 2 for p in pairs], abs=0.051)


def test_row_19_a_pack_of_text_has_no_picture_or_a_smallest_one(qwen3, tmp_path):
    folder = write(tmp_path / "data", [{"json": chat("x")}] * 2)
    (pack,) = one_pass(folder, qwen3).packs
    assert pack["visual_inputs"] is None
    (pack,) = one_pass(folder, qwen3, text_only_packs="dummy_image").packs
    assert pack["visual_inputs"].image_grid_thw.tolist() == [[1, 2, 2]]
    assert not segments(pack, "loss_mask")[-1].any()
    assert pack["pack_info"].samples == 2


FACTS = """
model: {{family: qwen3_vl, seq_length: 8192, kv_heads: 8, vision_trained: true}}
parallel: {{world_size: 8}}
batch: {{step: vlm_step, overlap_grad_reduce: {overlap}}}
experts: {{count: {experts}, balancing: [{balancing}]}}
packing: {{path: data, model: processor, text_only_packs: {text_only}}}
"""


def findings(tmp_path, capsys, **values):
    """What ``energon-pack check`` says of a run, by rule."""
    facts = {"overlap": "false", "experts": 0, "balancing": "aux_loss", "text_only": "allow"}
    path = tmp_path / "facts.yaml"
    path.write_text(FACTS.format(**(facts | values)))
    with suppress(SystemExit):
        main(["check", "--facts", str(path), "--format", "json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    return {finding["code"]: finding for finding in found}


def test_row_19_the_guard_speaks_where_a_pack_of_text_stops_training(tmp_path, capsys):
    finding = findings(tmp_path, capsys, overlap="true")["text-only-packs"]
    assert finding["severity"] == "error"
    assert "text_only_packs: dummy_image" in finding["fix"]
    settled = findings(tmp_path, capsys, overlap="true", text_only="dummy_image")
    assert "text-only-packs" not in settled


@pytest.mark.parametrize(
    "shape", [ParallelShape(context=2), ParallelShape(tensor=4, sequence_parallel=True)]
)
def test_row_20_a_length_that_the_topology_cannot_cut_is_refused(shape):
    with pytest.raises(ConfigError, match="1234, no multiple of alignment 4; set 1232 or 1236"):
        PackingConfig(path="x", model="x", seq_length=1234, alignment=required_multiple(shape))


def test_row_21_an_odd_length_is_fine_without_parallel_cuts(qwen3, tmp_path):
    assert required_multiple(ParallelShape()) == 1
    folder = write(tmp_path / "data", [of_length(qwen3, 4551)])
    (pack,) = one_pass(folder, qwen3, seq_length=4551).packs
    assert pack["input_ids"].shape == (1, 4551)


@pytest.mark.parametrize(
    "content",
    ["<image>what is <|image_pad|>?", [{"type": "text", "text": "<|image"}, {"type": "image"},
                                        {"type": "text", "text": "_pad|>"}]],
)  # fmt: skip
def test_row_22_a_control_token_in_text_refuses_its_sample(content, qwen3, tmp_path):
    bad = {"json": chat(content), "jpg": JPEG}
    done = one_pass(write(tmp_path / "data", [good(1), bad, good(2)]), qwen3)
    assert done.keys == ["000", "002"]
    assert done.lost == {"bad_conversation": 1}
    assert "holds the control token <|image_pad|>" in done.examples["bad_conversation"][2]


def test_row_23_a_sequence_wise_loss_of_experts_is_warned_of(tmp_path, capsys):
    found = findings(tmp_path, capsys, experts=8, balancing="seq_aux_loss")
    assert found["expert-sequence-loss"]["severity"] == "warning"
    assert "a row is a whole pack" in found["expert-sequence-loss"]["consequence"]
    assert "expert-sequence-loss" not in findings(tmp_path, capsys, experts=8)


def test_row_24_packed_loss_equals_that_of_the_samples_alone(qwen3, tmp_path):
    samples = [good(at) if at % 2 else of_length(qwen3, 20 + at) for at in range(8)]
    (pack,) = one_pass(write(tmp_path / "data", samples), qwen3, seq_length=1024).packs
    found = compare(tiny_model(qwen3, seed=1), pack, qwen3)
    assert found.samples == 8
    assert found.packed_loss == pytest.approx(found.alone_loss, abs=1e-5)
    assert found.gradient_difference < 1e-3


def test_row_25_seconds_per_grid_are_true(processors, tmp_path):
    family = load_family(str(processors["qwen2_5_vl"]))
    video = clip(frames(40, 64, 64), fps=20)
    folder = write(tmp_path / "data", [{"json": chat("<video>?"), "mp4": video}])
    (pack,) = one_pass(folder, family, video_fps=4).packs
    assert pack["visual_inputs"].second_per_grid_ts.tolist() == [0.5]
    # The model makes its own of them; tests/lengths compares those with the installed transformers.
    assert torch.equal(pack["position_ids"], torch.arange(pack["total_tokens"])[None])


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_row_26_white_is_behind_transparent_pixels_unless_dropped(mode, qwen3, tmp_path):
    image = Image.new("RGBA", (64, 64), (10, 20, 30, 0))
    image = image.convert(mode) if mode != "P" else Image.new("P", (64, 64), 0)
    options = {} if mode != "P" else {"transparency": 0}
    folder = write(tmp_path / "data", [{"json": chat(), "png": encode(image, "PNG", **options)}])
    white, dropped = (
        one_pass(folder, qwen3, alpha=alpha, pixel_dtype="uint8").packs[0]["visual_inputs"]
        for alpha in ("white", "drop")
    )
    assert white.pixel_values.min() == 255
    assert dropped.pixel_values.max() < 31
