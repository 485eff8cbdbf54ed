# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Twenty steps of a small Qwen3-VL through Megatron-Bridge on one GPU, packed and unpacked.

    python recipes/gpu_smoke.py

It needs one CUDA GPU, Transformer Engine, Megatron-Bridge and the ``demo`` extra; no model hub.
Both runs read the same demo conversations, about 40 a step, and print losses and tokens a second.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import torch

STEPS, WARMUP_STEPS = 20, 5
PACKS_A_STEP = 4
SAMPLES_A_PACK = 10
"""Of the demo data at its seq_length 4096, about; unpacked, each has a micro batch of its own."""
MAX_WORKERS = 8
"""Of the loader: with the demo's two, the speed shown may be that of reading."""
MODEL = "Qwen/Qwen3-VL-8B-Instruct"
TEXT = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
}
VISION = {
    "depth": 6,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_heads": 8,
    "out_hidden_size": 1024,
    "deepstack_visual_indexes": [1, 3, 5],
}


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), help="Where data go, and stay.")
@click.option("--mode", type=click.Choice(["packed", "unpacked"]), hidden=True)
def main(folder: Path | None, mode: str | None) -> None:
    """Compare packed with unpacked training on one GPU."""
    missing = what_is_missing()
    if missing:
        sys.exit(f"gpu_smoke.py: {missing}")
    if mode and folder:
        (folder / f"{mode}.json").write_text(json.dumps(train(mode, folder)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        compare(folder or Path(temporary))


def what_is_missing() -> str | None:
    """Say in a sentence why the script cannot run here."""
    if not torch.cuda.is_available():
        return "there is no CUDA GPU here; run it on a machine with one (dry runs need none)"
    try:
        import_module("transformer_engine.pytorch")
    except ImportError as error:
        return f"Transformer Engine is not usable ({error}); NVIDIA's NeMo container has it"
    core = find_spec("megatron.core")
    if not core or not core.origin or not find_spec("megatron.bridge"):
        return "Megatron-Bridge is not installed: pip install 'energon-pack[bridge]'"
    makefile = Path(core.origin).parent / "datasets" / "Makefile"
    if not makefile.is_file():
        return (
            "Megatron-Bridge runs make for megatron-core's dataset helpers, but the wheel of "
            f"megatron-core has them compiled and no Makefile: echo all: > {makefile}"
        )
    return None


def compare(folder: Path) -> None:
    """Run both ways, each in a process of its own, and print them side by side."""
    from energon_pack.demo.dataset import build_dataset

    if not (folder / "data" / "data.yaml").is_file():
        build_dataset(folder / "data", "mixed")
    results = {mode: run(mode, folder) for mode in ("packed", "unpacked")}
    click.echo(f"{'':10}{'first loss':>12}{'last loss':>12}{'tokens/s':>12}{'samples/step':>14}")
    for mode, result in results.items():
        first, last = result["losses"][0], result["losses"][-1]
        speed, samples = result["tokens_per_second"], result["samples_per_step"]
        click.echo(f"{mode:10}{first:12.3f}{last:12.3f}{speed:12.0f}{samples:14.1f}")


def run(mode: str, folder: Path) -> Any:
    """Train one way in a process of its own, whose log is shown, and return its result."""
    # A port and an address of its own, also inside another torchrun.
    launch = ["torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    script = [__file__, "--mode", mode, "--folder", str(folder)]
    command = [sys.executable, "-m", *launch, "--nproc-per-node", "1", *script]
    if subprocess.run(command, check=False).returncode:  # noqa: S603 - this file, own paths
        sys.exit(f"gpu_smoke.py: the {mode} run failed; its log is above")
    return json.loads((folder / f"{mode}.json").read_text())


def train(mode: str, folder: Path) -> dict[str, Any]:
    """Train one way and return its losses and speed."""
    from megatron.bridge.training.pretrain import pretrain
    from megatron.bridge.training.vlm_step import forward_step

    from energon_pack.bridge import PackingCallback

    meter = make_meter()
    pretrain(config(mode, folder), forward_step, callbacks=[meter, PackingCallback()])
    return {
        "losses": meter.losses,
        "tokens_per_second": meter.tokens / meter.seconds,
        "samples_per_step": meter.samples / STEPS,
    }


def config(mode: str, folder: Path) -> Any:
    """Return Megatron-Bridge's own 8B recipe on a small model and the demo data."""
    write_small_model(folder / "hub")
    from megatron.bridge.recipes.qwen_vl import qwen3_vl_8b_sft_config

    from energon_pack.bridge import use_packing
    from energon_pack.config import load_config

    cfg = qwen3_vl_8b_sft_config()
    # The recipe saves into ./nemo_experiments and resumes from there, and so would the second run.
    cfg.checkpoint.save = cfg.checkpoint.load = None
    cfg.logger.tensorboard_dir = str(folder / "tensorboard" / mode)
    data = load_config(folder / "data" / "data.yaml")
    packs = PACKS_A_STEP if mode == "packed" else PACKS_A_STEP * SAMPLES_A_PACK
    workers = min(MAX_WORKERS, len(os.sched_getaffinity(0)))
    overrides = [
        "model.tensor_model_parallel_size=1",
        # Needs Apex for the output layer; Megatron-Bridge takes Transformer Engine to be enough.
        "model.gradient_accumulation_fusion=False",
        f"train.train_iters={STEPS}",
        f"train.global_batch_size={packs}",
        f"dataset.num_workers={workers}",
        f"dataset.packing_policy={'window' if mode == 'packed' else 'none'}",
        "validation.eval_iters=0",
        "logger.log_interval=1",
        "optimizer.lr=0.0003",
        "scheduler.lr_warmup_iters=2",
    ]
    use_packing(cfg, data, overrides)
    return cfg


def write_small_model(hub: Path) -> None:
    """Put a small model's config where the stock recipe looks up the 8B model's."""
    from huggingface_hub import constants
    from transformers import Qwen3VLConfig

    snapshot = hub / f"models--{MODEL.replace('/', '--')}" / "snapshots" / "small"
    snapshot.mkdir(parents=True, exist_ok=True)
    refs = snapshot.parents[1] / "refs"
    refs.mkdir(exist_ok=True)
    (refs / "main").write_text("small")
    small = Qwen3VLConfig(
        text_config=TEXT,
        vision_config=VISION,
        architectures=["Qwen3VLForConditionalGeneration"],
    )
    (snapshot / "config.json").write_text(small.to_json_string(use_diff=False))
    os.environ["HF_HUB_OFFLINE"] = "1"
    constants.HF_HUB_CACHE, constants.HF_HUB_OFFLINE = str(hub), True


def make_meter() -> Any:
    """Return a callback that keeps losses, and tokens and seconds after the warm-up."""
    from megatron.bridge.training.callbacks import Callback

    class Meter(Callback):
        losses: list[float]
        tokens = samples = step = 0
        seconds = start = 0.0

        def on_train_start(self, context: Any) -> None:
            self.losses = []
            context.state.cfg.dataset.train_stream.tap(self.take)

        def take(self, pack: dict[str, Any]) -> None:
            self.samples += pack["pack_info"].samples
            if self.step >= WARMUP_STEPS:
                self.tokens += pack["pack_info"].tokens

        def on_train_step_start(self, context: Any) -> None:  # noqa: ARG002
            self.start = time.perf_counter()

        def on_train_step_end(self, context: Any) -> None:
            self.losses.append(context.loss_dict["lm loss"].item())
            if self.step >= WARMUP_STEPS:
                self.seconds += time.perf_counter() - self.start
            self.step += 1

    return Meter()


if __name__ == "__main__":
    main()
