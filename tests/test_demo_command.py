# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's commands, through the command line."""

import re

import pytest

from energon_pack.cli import main
from energon_pack.config import load_config
from energon_pack.demo import run


@pytest.fixture
def short_demo(monkeypatch, demo_copy, tmp_path):
    """The demo on a dataset that is there already, with few packs and steps."""
    monkeypatch.setattr(run, "PACKS", 6)
    monkeypatch.setattr(run, "STEPS", 2)
    assert demo_copy == tmp_path / "data"
    return tmp_path


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    return stopped.value.code


def test_the_demo_prints_its_figures_and_writes_four_plots(short_demo, capsys):
    assert call("demo", str(short_demo)) == 0
    shown = capsys.readouterr().out
    packed, alone = map(float, re.findall(r"loss (\d+\.\d+) packed, (\d+\.\d+) one", shown)[0])
    assert packed == pytest.approx(alone, abs=1e-5)
    assert "fill" in shown
    plots = {path.name for path in (short_demo / "report").glob("*.png")}
    assert plots == {"fill.png", "loss.png", "memory.png", "pack.png"}


def test_demo_data_writes_a_folder_ready_for_preview(tmp_path, capsys):
    folder = tmp_path / "new"
    assert call("demo-data", str(folder), "--kind", "image", "--samples", "4", "--seed", "5") == 0
    assert f"energon-pack preview {folder / 'data.yaml'}" in capsys.readouterr().out
    assert load_config(folder / "data.yaml").seed == 5


def test_demo_data_into_a_folder_in_use_is_one_sentence_and_status_2(tmp_path, capsys):
    (tmp_path / "mine.txt").touch()
    assert call("demo-data", str(tmp_path)) == 2
    error = capsys.readouterr().err
    assert "is not empty; give a new folder" in error
    assert "Traceback" not in error
