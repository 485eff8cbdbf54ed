# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes: forked from a server that has imported Megatron-Bridge once and run nothing.

A fork of pytest's own process would crash after a test has used gloo or autograd there.
"""

import os
import sys
from functools import cache
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from typing import Any
from unittest import mock

from integration.bridge_import import use_hub
from torch.multiprocessing import start_processes


def run_ranks(job: str, world: int, folder: Path, *args: Any) -> None:
    """Run ``integration.jobs.JOB(rank, world, folder, *args)`` in ``world`` processes.

    Raises what one of them raises.
    """
    # The server ignores the search path that it is sent (CPython 3.12), so what it imports first
    # has to be found through the environment.
    _forget_other_server()
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        forkserver.set_forkserver_preload(["integration.preload"])
        forkserver.ensure_running()
    start_processes(
        _enter, args=(job, world, folder, *args), nprocs=world, start_method="forkserver"
    )


@cache
def _forget_other_server() -> None:
    """Stop a server that an earlier test has started with imports of its own."""
    forkserver._forkserver._stop()


def _enter(rank: int, job: str, world: int, folder: Path, *args: Any) -> None:
    use_hub(folder.parent / "hub")
    getattr(import_module("integration.jobs"), job)(rank, world, folder, *args)
