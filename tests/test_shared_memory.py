# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A pack's patches reach the trainer without a copy, in memory that is used again and again."""

import os
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import torch
from pictures import visual_family
from torch.utils.data import DataLoader, IterableDataset

from energon_pack.candidate import Candidate, Medium
from energon_pack.decoding.shared_memory import PackMemory
from energon_pack.memory import read_process
from energon_pack.thd import PackBuilder, RowLayout

NUM_PACKS = 8
GRID = (1, 128, 128)
PACK_BYTES = 128 * 128 * 1536 * 4


class Packs(IterableDataset):
    """Packs of one 100 MB image each, which say what their worker holds."""

    def __init__(self):
        self.builder = PackBuilder(
            visual_family(),
            RowLayout(seq_length=8192),
            pixel_dtype="float32",
            text_only_packs="allow",
        )

    def __iter__(self):
        process = psutil.Process()
        image = torch.zeros((1, 2048, 2048, 3), dtype=torch.uint8)
        idle = read_process(process).held_bytes
        for at in range(NUM_PACKS):
            candidate = sample()
            opened = self.builder.open([candidate])
            opened.add(candidate, iter([image.fill_(at).permute(0, 3, 1, 2)]))
            pack = opened.close()
            pack["above_idle"] = read_process(process).held_bytes - idle
            lent = self.builder._visual._memory._lent
            pack["files"] = [os.fstat(file._fd).st_ino for file in lent]
            yield pack


def sample():
    image = Medium(kind="image", data=b"", height=1, width=1, resized=(2048, 2048), grid=GRID)
    return Candidate(
        __key__="k", __restore_key__=(), ids=np.full(4096, 151655, np.int32),
        trained=np.zeros(4096, bool), media=(image,),
    )  # fmt: skip


@pytest.fixture(scope="module")
def arrived():
    """What came out of one worker: (first value, bytes above idle, files of the worker)."""
    seen = []
    for pack in DataLoader(Packs(), batch_size=None, num_workers=1, prefetch_factor=2):
        patches = pack["visual_inputs"].pixel_values
        assert patches.is_shared()
        assert (patches[0] == patches[-1]).all()
        seen.append((patches[0, 0].item(), pack["above_idle"], pack["files"]))
        del pack, patches
        time.sleep(0.1)  # a training step
    return seen


def test_every_pack_arrives_with_its_own_numbers(arrived):
    values = [value for value, _, _ in arrived]
    assert values == pytest.approx([at / 127.5 - 1 for at in range(NUM_PACKS)], abs=1e-6)


def test_a_worker_holds_less_than_a_pack_of_its_own(arrived):
    assert max(above_idle for _, above_idle, _ in arrived) < PACK_BYTES / 10


def test_files_come_back_and_are_used_again(arrived):
    _, _, last = arrived[-1]
    # Prefetched, on its way, in the trainer's hands, and the one being written.
    assert len(set(last)) <= 5
    assert set(last) & set(arrived[1][2])


def test_a_tensor_that_the_trainer_keeps_is_never_written_again(monkeypatch):
    monkeypatch.setattr("energon_pack.decoding.shared_memory.get_worker_info", object)
    memory = PackMemory()
    kept = [filled(memory, value) for value in range(4)]
    for value in range(4, 20):
        assert (filled(memory, value) == value).all()
    assert [tensor[0, 0].item() for tensor in kept] == [0, 1, 2, 3]


def test_a_returned_file_is_taken_before_a_new_one_and_grows_where_needed(monkeypatch):
    monkeypatch.setattr("energon_pack.decoding.shared_memory.get_worker_info", object)
    memory = PackMemory()
    for rows in (10, 1000, 3, 2000, 1):
        assert (filled(memory, rows, rows) == rows).all()
        assert len(memory._lent) == 1


def test_rows_that_were_cut_off_are_written_over(monkeypatch):
    for worker in (object, lambda: None):
        monkeypatch.setattr("energon_pack.decoding.shared_memory.get_worker_info", worker)
        sheet = PackMemory().sheet((50, 8), torch.float32)
        sheet.append(torch.ones(20, 8))
        sheet.append(torch.full((25, 8), 2.0))
        sheet.cut(20)
        sheet.append(torch.full((5, 8), 3.0))
        assert sheet.tensor()[:, 0].tolist() == [1] * 20 + [3] * 5


FULL = """
import resource
import energon_pack.decoding.shared_memory as memory, torch
memory.get_worker_info = object
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
memory._MemoryFile.reserve = lambda self, num_bytes: None
memory.PackMemory().sheet((1000, 8), torch.float32).append(torch.ones(1000, 8))
"""


def test_a_machine_without_room_for_a_pack_stops_the_run_with_what_to_set():
    # A limit on file sizes stands in for a machine whose memory is full.
    run = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, check=False)
    last = run.stderr.strip().splitlines()[-1]
    assert "FatalSampleError: no memory for the patches of a pack" in last
    assert "lower num_workers" in last


def test_without_workers_memory_is_ordinary():
    assert not filled(PackMemory(), 1).is_shared()


def filled(memory, value, rows=50):
    sheet = memory.sheet((rows, 8), torch.float32)
    for part in torch.full((rows, 8), float(value)).split(20):
        sheet.append(part)
    return sheet.tensor()
