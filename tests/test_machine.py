# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What the guard reads of machine and data, against the demo dataset and its real packs."""

from dataclasses import replace

from energon_pack.loader import build_loader
from energon_pack.machine import largest_pack_bytes, mean_sample_bytes, read_machine, read_software


def test_the_mean_sample_size_is_that_of_the_shards(demo_folder, demo_config):
    shards = sum(path.stat().st_size for path in demo_folder.rglob("*.tar"))
    assert mean_sample_bytes(demo_folder) == shards // 72
    assert read_machine(demo_config, "qwen3_vl").sample_bytes == shards // 72


def test_a_dataset_that_is_no_prepared_folder_has_no_known_sample_size(tmp_path):
    blend = tmp_path / "blend.yaml"
    blend.write_text("__module__: megatron.energon\n")
    assert mean_sample_bytes(blend) is None
    assert mean_sample_bytes(tmp_path) is None


def test_no_real_pack_is_larger_than_the_largest(demo_config):
    config = replace(demo_config, num_workers=0)
    largest = largest_pack_bytes(config, "qwen3_vl")
    sizes = []
    for pack, _ in zip(build_loader(config, "train"), range(4), strict=False):
        visual = vars(pack["visual_inputs"])
        pixels = [visual["pixel_values"], visual["pixel_values_videos"]]
        sizes.append(sum(tensor.nbytes for tensor in pixels if tensor is not None))
    assert max(sizes) <= largest
    assert max(sizes) > largest / 4


def test_what_is_not_needed_on_a_machine_without_a_gpu_is_unknown():
    import torch

    software = read_software()
    assert software.core
    if not torch.cuda.is_available():
        assert software.transformer_engine is None
        assert software.linear_attention_kernels is None
