# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The self-check passes on a processor as installed and stops on one that changed its rules."""

import pytest
import transformers
from lengths.oracle import config

from energon_pack.family import ProcessorError, load_family
from energon_pack.selfcheck import SelfCheckError, self_check


@pytest.mark.parametrize("way", ["native", "bridge"])
@pytest.mark.parametrize("limits", [{}, {"seq_length": 8, "max_num_frames": 1, "alignment": 8}])
def test_the_installed_processor_passes(way, limits, family):
    self_check(family, config(preprocessing=way, **limits))


@pytest.mark.parametrize("kind", ["image", "video"])
def test_a_changed_placeholder_stops_with_both_numbers(kind, qwen3, monkeypatch):
    name = f"replace_{kind}_token"
    real = getattr(type(qwen3.processor), name)
    grid = f"{kind}_grid_thw"

    def one_more(processor, inputs, *number, **named):
        """Write one token more, unless asked for the grid that the measurement asks for."""
        text = real(processor, inputs, *number, **named)
        return text if int(inputs[grid][0][1]) == 2 else text + "."

    monkeypatch.setattr(type(qwen3.processor), name, one_more)
    with pytest.raises(SelfCheckError) as caught:
        self_check(qwen3, config())
    message = str(caught.value)
    assert f"transformers {transformers.__version__} makes" in message
    assert f"of the probe {kind}, the measurement" in message


def test_a_processor_that_fails_stops_with_its_error(qwen3, monkeypatch):
    monkeypatch.delattr(type(qwen3.processor), "replace_image_token")
    with pytest.raises(SelfCheckError, match="fails on the probe image"):
        self_check(qwen3, config())


def test_a_changed_resize_stops(qwen3, monkeypatch):
    module = transformers.models.qwen2_vl.image_processing_qwen2_vl
    monkeypatch.setattr(module, "smart_resize", lambda *_, **__: (64, 64))
    self_check(qwen3, config())
    monkeypatch.setattr(
        "energon_pack.measuring.resize._rule_of", lambda _: lambda *_, **__: (96, 64)
    )
    with pytest.raises(SelfCheckError, match=r"makes .* tokens with grid .*the measurement"):
        self_check(qwen3, config())


@pytest.mark.parametrize("kind", ["image", "video"])
def test_other_pixels_stop(kind, family, monkeypatch):
    processor = getattr(family.processor, f"{kind}_processor")
    real = processor.rescale_and_normalize
    monkeypatch.setattr(processor, "rescale_and_normalize", lambda *a, **k: real(*a, **k) + 0.25)
    with pytest.raises(SelfCheckError, match=f"of the probe {kind} that differ up to 0.25 from"):
        self_check(family, config())


def test_a_processor_that_cannot_be_called_stops_with_its_error(qwen3, monkeypatch):
    def resized(reader, medium, picture):
        raise TypeError("resize() missing 1 required positional argument: 'factor'")

    monkeypatch.setattr("energon_pack.pixels.PixelReader._resized", resized)
    with pytest.raises(SelfCheckError, match=r"image cannot be decoded with .*missing 1 required"):
        self_check(qwen3, config())


def test_bounds_may_be_given_alone(processors):
    folder = str(processors["qwen3_vl"])
    only_least = load_family(folder, min_pixels=1 << 20)
    size = only_least.processor.image_processor.size
    assert (size["shortest_edge"], size["longest_edge"]) == (1 << 20, 16_777_216)
    self_check(only_least, config(min_pixels=1 << 20))
    again = load_family(folder).processor.image_processor.size
    assert again["shortest_edge"] == 65_536


def test_bounds_that_cross_the_processors_own_are_refused(processors):
    with pytest.raises(ProcessorError, match="min_pixels 20000000 is above max_pixels 16777216"):
        load_family(str(processors["qwen3_vl"]), min_pixels=20_000_000)


def test_a_folder_without_a_processor_is_refused(tmp_path):
    with pytest.raises(ProcessorError, match="no processor could be loaded from") as caught:
        load_family(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_bare_name_that_is_no_folder_is_not_looked_up_on_the_hub(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with pytest.raises(ProcessorError, match=r"model 'processor' is no folder here") as caught:
        load_family("processor")
    assert "set model to one of the two" in str(caught.value)


def test_families_are_told_apart_by_the_processor(family, processors):
    expected = {
        "qwen2_5_vl": (14, 28, False),
        "qwen3_vl": (16, 32, True),
        "qwen3_5_vl": (16, 32, True),
    }
    found = (family.patch_size, family.factor, family.uses_mrope_positions)
    assert found == expected[family.name]
    assert family.fingerprint == load_family(str(processors[family.name])).fingerprint
    other = load_family(str(processors[family.name]), max_pixels=10**6)
    assert family.fingerprint != other.fingerprint
