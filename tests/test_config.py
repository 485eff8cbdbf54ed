# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from energon_pack.config import ConfigError, MonitorConfig, PackingConfig, load_config


def write(folder: Path, text: str) -> Path:
    file = folder / "data.yaml"
    file.write_text(text)
    return file


def test_a_short_yaml_takes_the_defaults(tmp_path):
    config = load_config(write(tmp_path, "path: shards\nmodel: Qwen/Qwen3-VL-8B-Instruct\n"))
    assert config == PackingConfig(path="shards", model="Qwen/Qwen3-VL-8B-Instruct")


def test_paths_are_relative_to_the_yaml(tmp_path):
    (tmp_path / "shards").mkdir()
    config = load_config(write(tmp_path, "path: shards\nmodel: processor\n"))
    assert config.path == str(tmp_path / "shards")
    assert config.model == "processor"


def test_all_problems_are_reported_at_once_with_their_paths(tmp_path):
    text = """
path: shards
modl: x
seq_length: long
video_fps: true
alpha: whit
monitor: {intervals: 3, log: 1}
"""
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text))
    assert [problem.path for problem in caught.value.problems] == [
        "modl",
        "seq_length",
        "video_fps",
        "alpha",
        "monitor.intervals",
        "monitor.log",
        "model",
    ]
    assert "did you mean model?" in str(caught.value)
    assert "did you mean interval_s?" in str(caught.value)
    assert "did you mean white?" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "path", "says"),
    [
        ("seq_length: 0", "seq_length", "at least 1"),
        ("packing_buffer_size: 0", "packing_buffer_size", "at least 1"),
        ("num_workers: -1", "num_workers", "at least 0"),
        ("video_fps: 0", "video_fps", "above 0"),
        ("frame_list_fps: .nan", "frame_list_fps", "above 0"),
        ("fill_tolerance: 1", "fill_tolerance", "from 0 to below 1"),
        ("min_pixels: 9\nmax_pixels: 4", "min_pixels", "above max_pixels 4"),
        ("seq_length: 1234\nalignment: 4", "seq_length", "set 1232 or 1236"),
        ("monitor: [1]", "monitor", "must be a mapping"),
        ("num_val_workers: x", "num_val_workers", "a whole number or null"),
    ],
)
def test_a_wrong_value_names_the_way_out(tmp_path, settings, path, says):
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, f"path: a\nmodel: b\n{settings}\n"))
    [problem] = caught.value.problems
    assert problem.path == path
    assert says in problem.text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("path: a\npath: b\n", "'path' stands twice"),
        ("path: &a x\nmodel: *a\n", "anchors and aliases"),
        ("path: !!python/object/apply:os.system ['true']\n", "no readable YAML"),
        ("1: a\n", "is no text"),
        ("- a\n", "must be a mapping"),
        ("", "must be a mapping"),
        ("path: [\n", "no readable YAML"),
        ("path: " + "[" * 5000 + "\n", "no readable YAML"),
    ],
)
def test_what_is_no_plain_mapping_is_refused_in_one_line(tmp_path, text, says):
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_a_folder_and_bytes_that_are_no_text_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="is a folder"):
        load_config(tmp_path)
    (tmp_path / "raw.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "raw.yaml")


def test_nested_settings_become_their_own_config(tmp_path):
    config = load_config(
        write(tmp_path, "path: a\nmodel: b\nmonitor: {interval_s: 5, fail_total: 90%}\n")
    )
    assert config.monitor == MonitorConfig(interval_s=5.0, fail_total="90%")
