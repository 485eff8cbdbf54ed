# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's four stages: a dataset, its packs, a tiny model trained on them, the plots."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from energon_pack.config import PackingConfig, load_config
from energon_pack.demo.dataset import build_dataset
from energon_pack.demo.train import Comparison, Step, compare, tiny_model, train
from energon_pack.family import load_family
from energon_pack.loader import build_loader
from energon_pack.plots.figures import plot_loss

SAMPLES: Final = 480
PACKS: Final = 60
STEPS: Final = 30


def demo_dataset(folder: Path, advance: Callable[[], object]) -> PackingConfig:
    """Build ``folder/data`` unless an earlier run has; return its settings."""
    data = folder / "data"
    if not (data / "data.yaml").exists():
        unfinished = folder / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        build_dataset(unfinished, samples=SAMPLES, advance=advance)
        unfinished.rename(data)
    return load_config(data / "data.yaml")


def demo_training(
    config: PackingConfig, report: Path, observe: Callable[[Step], None]
) -> tuple[list[Step], Comparison]:
    """Train on ``STEPS`` packs, plot the loss, and compare a pack with its samples one by one."""
    family = load_family(config.model)
    packs = iter(build_loader(config))
    model = tiny_model(family, seed=config.seed)
    steps = train(model, itertools.islice(packs, STEPS), observe=observe)
    plot_loss(report / "loss.png", [step.loss for step in steps])
    return steps, compare(model, next(packs), family)
