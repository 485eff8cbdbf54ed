# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Train a recipe on packs, or check everything of it but the model.

    python -m torch.distributed.run --nproc-per-node 8 recipes/train.py \
        --recipe qwen3_vl_8b_sft --data recipes/data/images.yaml \
        checkpoint.pretrained_checkpoint=/checkpoints/qwen3-vl-8b train.train_iters=2000

    python recipes/train.py --recipe qwen3_vl_8b_sft --data recipes/data/images.yaml \
        --dry-run --gpus 16

Overrides are Megatron-Bridge's own: ``dataset.packing_buffer_size=128 optimizer.lr=1e-5``.
"""

import logging
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from energon_pack.bridge.without_gpu import assumed_device, prepare_import
from energon_pack.errors import UserError

RECIPES = {
    "qwen25_vl": ("qwen25_vl_7b_sft", "qwen25_vl_7b_lora"),
    "qwen3_vl": (
        "qwen3_vl_8b_sft",
        "qwen3_vl_8b_lora",
        "qwen3_vl_30b_a3b_sft",
        "qwen3_vl_30b_a3b_lora",
        "qwen3_vl_8b_long_video",
        "qwen3_vl_8b_hierarchical_cp",
    ),
    "qwen35_vl": ("qwen35_vl_4b_sft", "qwen35_vl_4b_lora"),
}
MODULES = {name: module for module, names in RECIPES.items() for name in names}
STOPPED = 3
"""Exit status of a run that the memory monitor stopped in order."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--recipe", type=click.Choice(list(MODULES)), required=True)
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Dataset YAML.")
@click.option("--dry-run", is_flag=True, help="Check the config and read packs; build no model.")
@click.option("--gpus", type=int, default=8, show_default=True, help="World size of a dry run.")
@click.argument("overrides", nargs=-1)
def main(
    recipe: str,
    data: Path,
    dry_run: bool,  # noqa: FBT001 - a flag of the command line
    gpus: int,
    overrides: tuple[str, ...],
) -> None:
    """Train RECIPE on the packs that DATA describes, with Megatron-Bridge's OVERRIDES."""
    logging.basicConfig(level=logging.INFO)
    if dry_run:
        check(recipe, data, gpus, overrides)
    else:
        train(recipe, data, overrides)


def train(recipe: str, data: Path, overrides: tuple[str, ...]) -> None:
    """Hand the recipe, the step for packs and the callback to Megatron-Bridge."""
    from megatron.bridge.training.finetune import finetune
    from megatron.bridge.training.vlm_step import forward_step

    from energon_pack.bridge import PackingCallback

    callback = PackingCallback()
    try:
        finetune(build(recipe, data, overrides), forward_step, callbacks=[callback])
    finally:
        if callback.stop_reason:
            sys.exit(STOPPED)


def check(recipe: str, data: Path, gpus: int, overrides: tuple[str, ...]) -> None:
    """Print what a dry run finds out, also on a machine without GPU or Transformer Engine."""
    os.environ.setdefault("WORLD_SIZE", str(gpus))
    if prepare_import():
        click.echo("Transformer Engine is not installed here: what needs it is not checked")
    from energon_pack.bridge.dry_run import dry_run

    with assumed_device():
        try:
            cfg = build(recipe, data, overrides)
        except (OSError, ValueError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{recipe} cannot be built here: {error}") from error
    for line in dry_run(cfg):
        click.echo(line)


def build(recipe: str, data: Path, overrides: tuple[str, ...]) -> Any:
    """Call the recipe, which calls ``use_packing``."""
    return getattr(import_module(MODULES[recipe]), recipe)(data, overrides)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"train.py: {error}")
