# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Hand-computed rows: what a pack's tensors hold, where its padding is and what is trained."""

import itertools

import numpy as np
import pytest
import torch
from pictures import visual_family
from torch.utils.data._utils.pin_memory import pin_memory

from energon_pack.candidate import Candidate, Medium
from energon_pack.choosing.selector import capacity
from energon_pack.config import PackingConfig
from energon_pack.refusal import SampleError
from energon_pack.thd import PackBuilder, RowLayout

PAD, IGN = 7, -100
START, IMAGE, VIDEO, END = 151652, 151655, 151656, 151653


def text(*ids, trained=()):
    return candidate(ids, trained)


def candidate(ids, trained=(), media=()):
    return Candidate(
        __key__="k", __restore_key__=(), ids=np.array(ids, np.int32),
        trained=np.isin(np.arange(len(ids)), trained), media=media,
        visual_tokens=sum(medium.num_patches // 4 for medium in media),
    )  # fmt: skip


def medium(kind, grid, side, **more):
    size = (grid[1] * side, grid[2] * side)
    return Medium(kind=kind, data=b"12", height=1, width=1, resized=size, grid=grid, **more)


def frames_of(media):
    """Medium i is filled with 51 * i."""
    for at, each in enumerate(media):
        shape = (1 if each.kind == "image" else 2, *each.resized, 3)
        for _ in range(each.grid[0]):
            yield torch.full(shape, 51 * at, dtype=torch.uint8).permute(0, 3, 1, 2)


def build(candidates, *, family=None, dtype="float32", text_only="allow", broken=(), **layout):
    family = family or visual_family()
    builder = PackBuilder(
        family, RowLayout(**{"seq_length": 16, **layout}), pixel_dtype=dtype,
        text_only_packs=text_only,
    )  # fmt: skip
    pack = builder.open([*candidates, *(one for one, _ in broken)])
    for place, one in enumerate(candidates):
        pack.add(one, frames_of(one.media))
        if place == 0:
            for other, frames in broken:
                with pytest.raises(SampleError):
                    pack.add(other, frames)
    return pack.close()


def test_two_samples_without_padding():
    pack = build([text(11, 12, 13, trained=(1, 2)), text(21, 22, trained=(1,))])
    assert pack["input_ids"].tolist() == [[11, 12, 13, 21, 22]]
    assert pack["labels"].tolist() == [[12, 13, IGN, 22, IGN]]
    assert pack["loss_mask"].tolist() == [[1, 1, 0, 1, 0]]
    assert pack["position_ids"].tolist() == [[[0, 1, 2, 0, 1]]] * 3
    assert pack["cu_seqlens_q"].tolist() == pack["cu_seqlens_kv"].tolist() == [0, 3, 5]
    assert pack["max_seqlen_q"] == pack["max_seqlen_kv"] == 3
    assert pack["total_tokens"] == 5
    assert pack["attention_mask"] is None
    assert pack["visual_inputs"] is None


def test_types_are_those_of_the_contract():
    pack = build([text(11, 12, trained=(1,))])
    assert set(pack) == {
        "input_ids", "labels", "loss_mask", "position_ids", "attention_mask", "cu_seqlens_q",
        "cu_seqlens_kv", "max_seqlen_q", "max_seqlen_kv", "total_tokens", "visual_inputs",
        "pack_info",
    }  # fmt: skip
    for key in ("input_ids", "labels", "position_ids"):
        assert pack[key].dtype is torch.int64, key
    assert pack["loss_mask"].dtype is torch.float32
    for key in ("cu_seqlens_q", "cu_seqlens_kv", "max_seqlen_q", "max_seqlen_kv"):
        assert pack[key].dtype is torch.int32, key
        assert pack[key].device.type == "cpu", key
    assert pack["max_seqlen_q"].shape == ()


def test_alignment_padding_belongs_to_its_segment():
    pack = build([text(*range(11, 16), trained=(3, 4)), text(21, 22, 23, 24)], alignment=4)
    assert pack["input_ids"].tolist() == [[11, 12, 13, 14, 15, PAD, PAD, PAD, 21, 22, 23, 24]]
    assert pack["labels"].tolist() == [[IGN, IGN, 14, 15, IGN, IGN, IGN, IGN, *[IGN] * 4]]
    assert pack["position_ids"][0].tolist() == [[0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]]
    assert pack["cu_seqlens_q"].tolist() == [0, 8, 12]
    assert pack["max_seqlen_q"] == 8
    assert not any(key.endswith("_padded") for key in pack)


def test_fixed_width_is_filled_by_a_last_segment_without_loss():
    pack = build(
        [text(*range(11, 16), trained=(4,)), text(21, 22, 23)], alignment=4, fixed_width=True
    )
    assert pack["cu_seqlens_q"].tolist() == [0, 8, 12, 16]
    assert pack["input_ids"][0, 12:].tolist() == [PAD] * 4
    assert pack["loss_mask"].sum() == 1
    assert pack["position_ids"][2, 0, 12:].tolist() == [0, 1, 2, 3]


def test_a_full_row_gets_no_empty_segment():
    pack = build([text(*range(1, 17))], fixed_width=True)
    assert pack["cu_seqlens_q"].tolist() == [0, 16]


def test_visual_tokens_take_their_positions_and_text_goes_on_behind_them():
    image = medium("image", (1, 4, 6), 16)
    ids = (11, START, *[IMAGE] * 6, END, 12)
    pack = build([candidate(ids, (9,), (image,))], alignment=4)
    assert pack["position_ids"][:, 0].tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 8],
        [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 8],
        [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8],
    ]


def test_qwen2_5_gets_text_positions_and_the_seconds_of_its_videos():
    family = visual_family("qwen2_5_vl")
    videos = tuple(medium("video", (1, 2, 2), 14, second_per_grid=time) for time in (0.5, 0.25))
    pack = build([candidate((VIDEO, 11, VIDEO), media=videos), text(21, 22)], family=family)
    assert pack["position_ids"].tolist() == [[0, 1, 2, 0, 1]]
    assert pack["visual_inputs"].second_per_grid_ts.tolist() == [0.5, 0.25]


def test_patches_and_grids_follow_the_conversation_in_each_kind():
    media = (
        medium("image", (1, 2, 2), 16),
        medium("video", (2, 2, 4), 16),
        medium("image", (1, 2, 4), 16),
    )
    ids = (START, IMAGE, END, VIDEO, VIDEO, VIDEO, VIDEO, IMAGE, IMAGE)
    pack = build([text(11, 12), candidate(ids, media=media)])
    visual = pack["visual_inputs"]
    assert visual.image_grid_thw.tolist() == [[1, 2, 2], [1, 2, 4]]
    assert visual.video_grid_thw.tolist() == [[2, 2, 4]]
    # 0 to 255 become -1 to 1.
    assert visual.pixel_values.mean(1).tolist() == pytest.approx([-1] * 4 + [-0.2] * 8)
    assert visual.pixel_values_videos.mean(1).tolist() == pytest.approx([-0.6] * 16)
    assert visual.second_per_grid_ts is None


def test_a_dummy_image_stands_in_a_zero_loss_segment_of_its_own():
    pack = build([text(11, 12, 13, trained=(2,))], text_only="dummy_image", alignment=4)
    assert pack["input_ids"].tolist() == [[11, 12, 13, PAD, START, IMAGE, END, PAD]]
    assert pack["cu_seqlens_q"].tolist() == [0, 4, 8]
    assert pack["loss_mask"].sum() == 1
    assert pack["visual_inputs"].image_grid_thw.tolist() == [[1, 2, 2]]
    assert pack["visual_inputs"].pixel_values.shape == (4, 1536)
    info = pack["pack_info"]
    assert (info.samples, info.tokens, info.images, info.visual_patches) == (1, 3, 0, 0)


def test_no_dummy_image_beside_a_real_one():
    image = medium("image", (1, 2, 2), 16)
    pack = build([candidate((START, IMAGE, END), media=(image,))], text_only="dummy_image")
    assert pack["cu_seqlens_q"].tolist() == [0, 3]


def test_room_for_a_dummy_image_is_kept():
    def room(text_only, alignment):
        return capacity(
            PackingConfig(
                path="x", model="y", seq_length=16, alignment=alignment, text_only_packs=text_only
            )
        )

    assert room("allow", 4) == room("with_media", 4) == 16
    for alignment in (1, 4):
        full = text(*range(room("dummy_image", alignment)))
        pack = build([full], text_only="dummy_image", alignment=alignment)
        assert pack["total_tokens"] == 16


def test_figures_leave_padding_out():
    image = medium("image", (1, 2, 4), 16)
    pack = build(
        [candidate((START, IMAGE, IMAGE, END, 11), (4,), (image,)), text(0, 1, trained=(0, 1))],
        alignment=4,
        fixed_width=True,
    )
    info = pack["pack_info"]
    assert (info.samples, info.tokens, info.width, info.seq_length) == (2, 7, 16, 16)
    assert info.trained_tokens == 2 == pack["loss_mask"].sum()
    assert (info.visual_tokens, info.visual_patches, info.images, info.videos) == (2, 8, 1, 0)
    assert (info.media_bytes, info.longest, info.fill) == (2, 8, 7 / 16)


def breaking_after(media, count):
    yield from itertools.islice(frames_of(media), count)
    raise SampleError("decode_failed", "cut short")


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_sample_that_breaks_leaves_no_trace_in_its_pack(count):
    image, video = medium("image", (1, 2, 2), 16), medium("video", (2, 2, 2), 16)
    whole = [
        candidate((IMAGE, VIDEO, VIDEO), (2,), (image, video)),
        text(11, 12, trained=(1,)),
        candidate((IMAGE, 13), (1,), (image,)),
    ]
    bad = candidate((VIDEO, VIDEO, IMAGE, VIDEO, VIDEO), (4,), (video, image, video))
    alone, beside = build(whole), build(whole, broken=[(bad, breaking_after(bad.media, count))])
    assert beside.pop("pack_info") == alone.pop("pack_info")
    visual, wanted = vars(beside.pop("visual_inputs")), vars(alone.pop("visual_inputs"))
    for name, value in (alone | wanted).items():
        other = (beside | visual)[name]
        assert torch.equal(other, value) if torch.is_tensor(value) else other == value, name


def test_a_pack_whose_only_media_broke_is_text():
    image = candidate((IMAGE,), media=(medium("image", (1, 2, 2), 16),))
    for text_only, grids in (("allow", None), ("dummy_image", [[1, 2, 2]])):
        broken = [(image, breaking_after(image.media, 0))]
        pack = build([text(11, 12)], broken=broken, text_only=text_only)
        visual = pack["visual_inputs"]
        assert (visual and visual.image_grid_thw.tolist()) == grids


def test_visual_inputs_can_be_walked_as_vlm_step_does():
    image = medium("image", (1, 2, 2), 16)
    for dtype in ("float32", "bfloat16", "uint8"):
        visual = build([candidate((IMAGE,), media=(image,))], dtype=dtype)["visual_inputs"]
        for name, value in visual.__dict__.items():
            assert value is None or isinstance(value, torch.Tensor), name
            visual.__dict__[name] = None if value is None else value.clone()
        arguments = visual.normalized_for_model()
        assert set(arguments) == {"pixel_values", "image_grid_thw"}
        assert arguments["pixel_values"].is_floating_point()


def test_a_dataloader_pins_every_tensor_of_the_visual_inputs(monkeypatch):
    # Real pinning needs a device; what is tested is that the loader reaches each tensor.
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, *_: self.clone())
    image = medium("image", (1, 2, 2), 16)
    pack = build([candidate((IMAGE,), media=(image,))], dtype="uint8")
    pinned = pin_memory({"visual_inputs": pack["visual_inputs"]})["visual_inputs"]
    assert type(pinned) is type(pack["visual_inputs"])
    for name, value in vars(pack["visual_inputs"]).items():
        other = getattr(pinned, name)
        assert (value is None) == (other is None), name
        assert value is None or (other is not value and torch.equal(other, value)), name
