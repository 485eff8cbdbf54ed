# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A worker's memory and its open files stay where they are over 2,000 packs."""

from dataclasses import replace
from itertools import islice

import psutil
import pytest

from energon_pack.loader import build_loader

NUM_PACKS = 2000
WARM_UP = 200


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_memory_is_flat_over_2000_packs(demo_config):
    config = replace(demo_config, num_workers=1, seq_length=2048)
    seen = []
    for place, _ in enumerate(islice(build_loader(config), NUM_PACKS)):
        if place >= WARM_UP and place % 100 == 0:
            worker = max(psutil.Process().children(), key=lambda child: child.memory_info().rss)
            seen.append((worker.memory_info().rss, worker.num_fds()))
    resident, files = zip(*seen, strict=True)
    assert max(resident) - resident[0] < 16 * 2**20
    assert max(files) - files[0] < 16
