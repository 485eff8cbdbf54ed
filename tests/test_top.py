# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image
from rich.console import Console
from test_levels import snapshot

from energon_pack.cli import app
from energon_pack.live import follow, render, sparkline
from energon_pack.monitor.exporters import JsonLinesSink
from energon_pack.monitor.runs import Curve, LiveProcess, RecordedRun, RunError
from energon_pack.monitor.snapshot import Event

MIB = 1 << 20


def record_run(path, *, rank=0, looks=40, ended=True):
    """Write a run in which worker 1 grows and worker 0 dies at the end."""
    sink = JsonLinesSink(path)
    for look in range(looks):
        seen = snapshot(rss=(200, 300 + 10 * look), total=700 + 10 * look, used=500)
        last = look == looks - 1
        died = Event(time=float(look), kind="died", message="worker 0 was killed", worker="0")
        workers = [replace(worker, packs_total=10 * look) for worker in seen.workers]
        workers[1] = replace(workers[1], grows=look > 20, growth_bytes_per_pack=1.02e6)
        seen = replace(
            seen,
            time=1_796_000_000.0 + 10 * look,
            rank=rank,
            pid=2**22 + rank,
            step=20 * look,
            ended=last and ended,
            events=(died,) if last else (),
            workers=() if last else tuple(workers),
        )
        sink.log(seen.record(), seen.step)
    sink.close()


def text_of(histories, width=140):
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(render(histories, width))
    return console.file.getvalue()


def invoke(*arguments):
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_top_shows_a_finished_file_with_its_workers_as_they_were(tmp_path):
    record_run(tmp_path / "run.jsonl")
    shown = invoke("top", str(tmp_path / "run.jsonl")).output
    assert re.search(r"rank 0 on node, pid \d+ +ended", shown)
    growing = next(line for line in shown.splitlines() if line.strip().startswith("1 "))
    assert "680 MiB" in growing
    assert "+1,020 MB/1k" in growing
    assert re.search(r"died +worker 0 was killed", shown)


def test_top_shows_a_line_for_each_rank_of_a_folder(tmp_path):
    for rank in (2, 0, 11):
        record_run(tmp_path / f"rank-{rank:05d}.jsonl", rank=rank)
    shown = text_of(RecordedRun(tmp_path).histories)
    ranks = [line.split()[0] for line in shown.splitlines() if "node" in line]
    assert ranks == ["0", "2", "11"]
    assert shown.count("1: 680 MiB") == 3
    assert re.search(r"died +rank 11: worker 0 was killed", shown)


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_a_narrow_terminal_loses_columns_and_no_text(tmp_path, width):
    record_run(tmp_path / "run.jsonl")
    shown = text_of(RecordedRun(tmp_path / "run.jsonl").histories, width)
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    assert "680 MiB" in shown


def test_top_follows_a_file_that_grows(tmp_path):
    file = tmp_path / "run.jsonl"
    record_run(file, looks=3, ended=False)
    run = RecordedRun(file)
    assert run.histories[0].latest.step == 40
    half = file.read_text().splitlines()[0]
    with file.open("a") as out:
        out.write(half[:50])
        out.flush()
        run.poll()
        assert run.histories[0].latest.step == 40
        out.write(half[50:] + "\n")
    run.poll()
    assert run.histories[0].latest.step == 0


def test_lines_that_are_no_records_are_passed_over(tmp_path):
    file = tmp_path / "run.jsonl"
    file.write_text('{"loss": 1}\nnot json\n[]\n')
    record_run(file, looks=2)
    assert RecordedRun(file).histories[0].latest.step == 20


def test_a_run_whose_process_is_gone_is_not_waited_for(tmp_path):
    record_run(tmp_path / "run.jsonl", ended=False)
    console = Console(file=io.StringIO(), force_terminal=True, width=140)
    started = time.monotonic()
    follow(RecordedRun(tmp_path / "run.jsonl"), console, every_s=60)
    assert time.monotonic() - started < 5


def test_top_tells_json_to_scripts(tmp_path):
    record_run(tmp_path / "run.jsonl")
    (record,) = json.loads(invoke("top", str(tmp_path / "run.jsonl"), "--format", "json").output)
    assert record["worker/1/rss_bytes"] == 680 * MIB


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such.jsonl"], "no-such.jsonl does not exist"),
        (["."], "has no records of the memory monitor"),
        (["--pid", "4194305"], "there is no process 4194305"),
        ([], "give either"),
        (["run.jsonl", "--pid", "1"], "give either"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(message)):
        invoke("top", *arguments)


TRAINER = """
import sys
sys.path.insert(0, {tests!r})
from loaders import Packs, loader_of
for number, _ in enumerate(loader_of(Packs(pause_s=0.05))):
    print(number, flush=True)
"""


def test_top_finds_the_workers_of_a_pid_and_how_one_was_killed():
    code = TRAINER.format(tests=str(Path(__file__).parent))
    trainer = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        for _ in range(5):
            trainer.stdout.readline()
        source = LiveProcess(trainer.pid)
        (history,) = source.histories
        workers = history.latest.workers
        assert len(workers) == 2
        # The trainer must not fetch the exit code before it is looked at.
        os.kill(trainer.pid, signal.SIGSTOP)
        os.kill(workers[0].pid, signal.SIGKILL)
        time.sleep(0.5)
        source.poll()
        source.poll()
        assert [event.kind for event in history.events] == ["died"]
        assert len(history.latest.workers) == 1
        assert f"(pid {workers[0].pid}) was killed by SIGKILL" in text_of(source.histories)
    finally:
        trainer.kill()
        trainer.wait()
    source.poll()
    assert not history.runs


def test_plot_draws_a_picture(tmp_path):
    record_run(tmp_path / "run.jsonl")
    out = invoke("plot", str(tmp_path / "run.jsonl")).output.strip()
    assert out == str(tmp_path / "run.png")
    picture = Image.open(out)
    assert picture.width > 800
    colours = [colour for _, colour in picture.convert("RGB").getcolors(1 << 20)]
    for worker in ((0, 114, 178), (213, 94, 0)):
        off = min(sum(abs(a - b) for a, b in zip(worker, c, strict=True)) for c in colours)
        assert off < 60, "a worker's curve is missing"


def test_plot_of_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match="is no file"):
        invoke("plot", str(tmp_path))


def test_a_sparkline_tells_growth_from_noise():
    flat, growing = Curve(), Curve()
    for number in range(1000):
        flat.add(1000 + number % 7)
        growing.add(1000 + number)
    assert set(sparkline(flat)) <= {"▁"}
    assert sparkline(growing)[0] == "▁"
    assert sparkline(growing)[-1] == "█"
    assert len(sparkline(growing)) <= 16
    assert sparkline(Curve()) == ""
