# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys

import pytest
import yaml

from energon_pack.cli import COMMANDS, USAGE_ERROR, main


def run(capsys, *arguments):
    """Run a command in this process; return its exit status, stdout and stderr."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code or 0, *capsys.readouterr()


@pytest.fixture
def data(demo_copy):
    """Settings of a copy of the demo dataset, to be changed and written."""
    file = demo_copy / "data.yaml"
    return file, yaml.safe_load(file.read_text())


def test_help_lists_every_command_without_loading_torch():
    code = (
        "import sys; from energon_pack.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print('torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = shown.stdout.splitlines()
    assert lines[-1] == "False"
    assert all(any(line.strip().startswith(name) for line in lines) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(capsys, name):
    status, shown, _ = run(capsys, name, "--help")
    assert status == 0
    assert shown.startswith("Usage: energon-pack")


def test_preview_as_json_is_one_object_with_the_documented_figures(capsys, data):
    file, _ = data
    status, shown, _ = run(capsys, "preview", file, "--packs", 6, "--workers", 2,
                           "--format", "json", "--report", file.parent / "report")  # fmt: skip
    assert status == 0
    figures = json.loads(shown)
    assert figures["packs"] == 6
    assert figures["samples"] == sum(worker["samples"] for worker in figures["workers"])
    assert 0.9 < figures["fill"] <= 1
    assert figures["samples_per_pack"] == figures["samples"] / 6
    assert figures["skipped"] == {}
    assert [worker["worker_id"] for worker in figures["workers"]] == [0, 1]
    for name in ("first_pack_s", "packs_per_s", "tokens_per_s", "peak_worker_rss_bytes"):
        assert figures[name] > 0
    assert sorted(plot.name for plot in (file.parent / "report").glob("*.png")) == [
        "fill.png",
        "memory.png",
        "pack.png",
    ]


def test_preview_as_text_shows_fill_and_workers(capsys, data):
    file, _ = data
    status, shown, _ = run(capsys, "preview", file, "--packs", 2, "--workers", 0, "--split", "val")
    assert status == 0
    assert "fill" in shown
    assert "Workers" in shown


def gone(settings, folder):
    settings["path"] = "nowhere"


def unprepared(settings, folder):
    (folder / ".nv-meta").rename(folder / "meta")


def no_processor(settings, folder):
    settings["model"] = "no/such-model"


def misspelt(settings, folder):
    settings["packing_bufer_size"] = settings.pop("packing_buffer_size")


def other_yaml(settings, folder):
    settings["path"] = "data.yaml"


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (gone, "does not exist"),
        (unprepared, "energon prepare"),
        (no_processor, "no/such-model"),
        (misspelt, "did you mean packing_buffer_size?"),
        (other_yaml, "data.yaml cannot be opened as an Energon dataset"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence_and_status_2(capsys, data, damage, says):
    file, settings = data
    damage(settings, file.parent)
    file.write_text(yaml.safe_dump(settings))
    status, shown, problem = run(capsys, "preview", file, "--packs", 1)
    assert status == USAGE_ERROR
    assert shown == ""
    [sentence] = problem.strip().splitlines()
    assert sentence.startswith("energon-pack: ")
    assert says in sentence


def test_an_empty_split_is_one_sentence_and_status_2(capsys, data):
    file, _ = data
    split = file.parent / ".nv-meta" / "split.yaml"
    parts = yaml.safe_load(split.read_text())
    parts["split_parts"]["val"] = []
    split.write_text(yaml.safe_dump(parts))
    status, _, problem = run(capsys, "preview", file, "--split", "val")
    assert status == USAGE_ERROR
    assert "has no shards in its val split" in problem
