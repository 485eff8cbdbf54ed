# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
import gc
import os
import re
import subprocess
import sys
import tempfile

import pytest

from energon_pack.candidate import Refused
from energon_pack.choosing.ledger import Ledger
from energon_pack.choosing.losses import Losses
from energon_pack.refusal import CAUSES


def losses_of(causes):
    losses = Losses()
    for cause in causes:
        refused = Refused(
            __key__="\N{PANDA FACE}" * 500, __restore_key__=(), cause=cause, message="m" * 500
        )
        losses.add(refused, "read")
    return losses


def test_a_record_says_what_the_worker_last_wrote():
    ledger = Ledger()
    ledger.open(3)
    ledger.note(losses_of(["bad_image", "bad_image", "overlong"]), packs=5)
    ledger.work_on("shard/17", "decode")
    (record,) = ledger.read()
    assert (record.worker_id, record.pid, record.packs) == (3, os.getpid(), 5)
    assert (record.key, record.stage, record.ended) == ("shard/17", "decode", False)
    assert record.lost == record.pending == {"bad_image": 2, "overlong": 1}


def test_every_cause_at_once_with_long_keys_fits_a_record():
    ledger = Ledger()
    ledger.open(0)
    ledger.note(losses_of(CAUSES), packs=1)
    ledger.work_on("\N{PANDA FACE}" * 500, "decode")
    (record,) = ledger.read()
    assert record.lost == dict.fromkeys(CAUSES, 1)
    assert record.key == "\N{PANDA FACE}" * 200
    assert record.stage == "decode"


def test_a_shorter_line_replaces_a_longer_one():
    ledger = Ledger()
    ledger.open(0)
    ledger.note(losses_of(CAUSES), packs=1)
    ledger.work_on("long" * 40, "decode")
    ledger.note(Losses(), packs=2)
    ledger.work_on("", "")
    (record,) = ledger.read()
    assert (record.packs, record.lost, record.key) == (2, {}, "")


def test_losses_that_a_pack_took_are_no_longer_pending():
    losses = losses_of(["overlong"])
    assert losses.take_pending() == {"overlong": 1}
    losses.add(Refused(__key__="b", __restore_key__=(), cause="overlong", message="-"), "read")
    assert losses.pending() == {"overlong": 1}
    assert losses.total == {"overlong": 2}


def test_the_folder_goes_with_its_ledger():
    ledger = Ledger()
    folder = ledger.folder
    assert folder.is_dir()
    del ledger
    gc.collect()
    assert not folder.exists()


def test_the_folder_of_a_killed_trainer_goes_with_the_next_ledger(tmp_path, monkeypatch):
    program = (
        "import time; from energon_pack.choosing.ledger import Ledger; "
        "ledger = Ledger(); print(ledger.folder, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    trainer = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        folder = tmp_path / trainer.stdout.readline().strip()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        alive = Ledger()
        assert folder.is_dir()
    finally:
        trainer.kill()
        trainer.wait()
        trainer.stdout.close()
    another = Ledger()
    assert not folder.exists()
    assert alive.folder.is_dir()
    assert another.folder.is_dir()


def test_a_worker_that_is_killed_is_named_with_its_sample():
    # In a process of its own: torch raises at any point of the one whose worker died.
    program = """
import os, signal
from window_parts import build, loader_of

def fatal(candidate):
    if candidate.__key__ == "0/9":
        os.kill(os.getpid(), signal.SIGKILL)
    return candidate

dataset = build([40], workers=1, decode=fatal, packing_policy="none")
with dataset.ledger.naming_dead_workers():
    list(loader_of(dataset))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    trainer = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=False,
        text=True,
        env=environment,
    )
    assert trainer.returncode
    assert "WorkerDiedError" in trainer.stderr
    assert re.search(r"Worker 0 .* in decode of sample '0/9', after 8 packs", trainer.stderr)


def test_other_errors_pass_unchanged():
    ledger = Ledger()
    with pytest.raises(RuntimeError, match=r"^CUDA out of memory$"), ledger.naming_dead_workers():
        raise RuntimeError("CUDA out of memory")
