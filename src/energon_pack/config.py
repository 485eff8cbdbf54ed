# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What a user sets: the dataset YAML as one frozen dataclass, with a reason for each default."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from energon_pack.sizes import SizeError, parse_limit
from energon_pack.strict import ConfigError, Problem, load_yaml, parse_dataclass

__all__ = ["ConfigError", "CostWeights", "MonitorConfig", "PackingConfig", "load_config"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CostWeights:
    """What a pack costs a training step, for the balance over ranks (arbitrary but equal units)."""

    token: float = 1.0
    """Cost of one token in the linear layers."""
    attention: float = 1e-4
    """Cost of one squared segment token; about 1 / (6 * hidden size)."""
    patch: float = 0.25
    """Cost of one vision patch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorConfig:
    """The worker-memory monitor. Sizes are bytes (``8GiB``) or a share of the cgroup (``80%``)."""

    enabled: bool = True
    """Watch the workers' memory in a background thread of the trainer."""
    interval_s: float = 10.0
    """Seconds between two samples."""
    warn_worker: str | None = None
    """One worker's resident memory above which a warning is logged once."""
    fail_worker: str | None = None
    """One worker's resident memory above which the run stops in order."""
    warn_total: str | None = "80%"
    """Trainer and workers of a rank above which a warning is logged once; as a share, all that is
    used of the cgroup, which the ranks of a node may have together."""
    fail_total: str | None = None
    """The same above which the run stops in order."""
    log: bool = True
    """Write warnings and a line a minute through ``logging``."""
    jsonl: str | None = None
    """File or folder for JSON lines, one file a rank; ``energon-pack top`` and ``plot`` read it."""
    tensorboard: str | None = None
    """Folder for TensorBoard event files."""
    wandb_project: str | None = None
    """Weights & Biases project."""
    prometheus_port: int | None = None
    """Port of a Prometheus endpoint; rank r listens on port + r."""
    prometheus_textfile: str | None = None
    """File for node_exporter's textfile collector."""

    def __post_init__(self) -> None:
        """Check interval and limits; raise one ``ConfigError`` with all problems."""
        problems = list(_monitor_problems(self))
        if problems:
            raise ConfigError(problems)


def _monitor_problems(config: MonitorConfig) -> Iterator[Problem]:
    if not config.interval_s > 0:
        yield Problem("interval_s", f"is {config.interval_s}; it must be above 0 seconds")
    for name in ("warn_worker", "fail_worker", "warn_total", "fail_total"):
        text = getattr(config, name)
        try:
            if text is not None:
                parse_limit(text)
        except SizeError as error:
            yield Problem(name, str(error))


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingConfig:
    """One packed dataset: where the shards are, how long a pack is, and every limit on the way."""

    path: str
    """Prepared Energon dataset folder, or a MetadatasetV2 YAML file."""
    model: str
    """Hugging Face id or local folder of the processor."""
    cooker: str | None = None
    """``package.module:function`` or ``file.py:function`` that turns a crude sample into a
    conversation; None reads the layout of the docs."""
    seq_length: int = 8192
    """Tokens a pack may hold."""
    packing_buffer_size: int = 64
    """Candidates a worker chooses from. They hold compressed bytes, so 64 to 256 cost little."""
    packing_buffer_bytes: str | None = None
    """Limit on the compressed media a worker's candidates hold, such as ``512MiB``."""
    packing_policy: str = "window"
    """``window``, ``first_fit_decreasing``, ``sequential`` or ``none``."""
    fill_tolerance: float = 0.001
    """Share of seq_length given up to balance step cost over ranks; 0 takes the fullest pack."""
    cost: CostWeights = field(default_factory=CostWeights)
    """Step-cost weights for the balance."""
    max_samples_per_pack: int | None = None
    """Segments a pack may hold."""
    max_visual_tokens_per_pack: int | None = None
    """Visual tokens a pack may hold."""
    max_images_per_pack: int | None = None
    """Images a pack may hold."""
    num_workers: int = 2
    """Worker processes a rank for training."""
    num_val_workers: int | None = None
    """Worker processes a rank for validation; None takes ``num_workers``."""
    shuffle_buffer_size: int = 100
    """Raw samples in Energon's shuffle buffer, compressed; 1 keeps shard order."""
    max_samples_per_sequence: int | None = None
    """Longest run of neighbouring shard samples Energon reads in order; None for no limit."""
    min_pixels: int | None = None
    """Smallest resized image in pixels; None takes the processor's own."""
    max_pixels: int | None = None
    """Largest resized image in pixels; None takes the processor's own."""
    max_num_images: int | None = None
    """Images a sample may have; above it the sample is skipped and counted."""
    max_num_frames: int | None = None
    """Frames of one video that are kept, taken evenly."""
    max_visual_tokens: int | None = None
    """Visual tokens a sample may have; above it the sample is skipped and counted."""
    max_source_pixels: int = 178_956_970
    """Pixels of a stored image or frame above which it is refused before anything is allocated."""
    video_fps: float = 2.0
    """Frames a second at which encoded clips are sampled."""
    frame_list_fps: float | None = 2.0
    """Frames a second of frame lists whose sample does not say; None refuses such samples."""
    preprocessing: Literal["native", "bridge"] = "native"
    """``native``: one resize by the model's rule; ``bridge``: Megatron-Bridge 0.6.2's chain."""
    exif: Literal["ignore", "apply"] = "ignore"
    """EXIF orientation; the reference processors ignore it."""
    alpha: Literal["white", "drop"] = "white"
    """What stands behind transparent pixels; ``drop`` keeps the colour under the alpha."""
    train_turns: Literal["all", "last"] = "all"
    """Assistant turns that are trained."""
    on_overlong: Literal["skip", "error"] = "skip"
    """A sample longer than seq_length: skip and count it, or stop."""
    alignment: int = 1
    """Multiple of every segment in tokens; ``use_packing`` derives it from the topology."""
    fixed_width: Literal["auto", "always", "never"] = "auto"
    """Fill packs up to seq_length with a zero-loss segment; ``auto``: where it is needed."""
    text_only_packs: Literal["allow", "with_media", "dummy_image"] = "allow"
    """Packs without media: allow, avoid where possible, or add a smallest image without loss."""
    pixel_dtype: Literal["float32", "bfloat16", "uint8"] = "float32"
    """Type of ``pixel_values``; ``uint8`` patches are normalised on the device."""
    seed: int = 0
    """Seed of shuffling, added to Energon's worker seeds."""
    prefetch_factor: int = 2
    """Packs each worker prepares ahead; patches lie in memory files, rows in /dev/shm."""
    max_consecutive_skips: int = 1000
    """Refused samples in a row after which the run stops with the table of causes."""
    resume_mismatch: Literal["error", "warn"] = "error"
    """A checkpoint of other settings: refuse, or continue where Energon can."""
    spill_dir: str | None = None
    """Folder on local disk for the candidates' media bytes; None keeps them in memory."""
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    """The worker-memory monitor."""

    def __post_init__(self) -> None:
        """Check the fields against each other; raise one ``ConfigError`` with all problems."""
        problems = list(_problems(self))
        if problems:
            raise ConfigError(problems)

    def unmonitored(self) -> "PackingConfig":
        """Return these settings without the memory monitor, for loops that bring their own."""
        return replace(self, monitor=replace(self.monitor, enabled=False))


_AT_LEAST: dict[str, int] = {
    "seq_length": 1,
    "packing_buffer_size": 1,
    "num_workers": 0,
    "num_val_workers": 0,
    "shuffle_buffer_size": 1,
    "max_samples_per_sequence": 1,
    "min_pixels": 1,
    "max_pixels": 1,
    "max_num_images": 0,
    "max_num_frames": 1,
    "max_visual_tokens": 1,
    "max_source_pixels": 1,
    "max_samples_per_pack": 1,
    "max_visual_tokens_per_pack": 1,
    "max_images_per_pack": 1,
    "alignment": 1,
    "prefetch_factor": 1,
    "max_consecutive_skips": 1,
    "seed": 0,
}


def _problems(config: PackingConfig) -> list[Problem]:
    problems = []
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if value is not None and value < least:
            problems.append(Problem(name, f"is {value}; it must be at least {least}"))
    for name in ("video_fps", "frame_list_fps"):
        value = getattr(config, name)
        if value is not None and not value > 0:
            problems.append(Problem(name, f"is {value}; it must be above 0 frames a second"))
    if not 0 <= config.fill_tolerance < 1:
        problems.append(
            Problem("fill_tolerance", f"is {config.fill_tolerance}; give a share from 0 to below 1")
        )
    if config.min_pixels and config.max_pixels and config.min_pixels > config.max_pixels:
        problems.append(
            Problem("min_pixels", f"is {config.min_pixels}, above max_pixels {config.max_pixels}")
        )
    if config.cooker is not None and not all(config.cooker.rpartition(":")):
        problem = f"is {config.cooker!r}; give package.module:function or file.py:function"
        problems.append(Problem("cooker", problem))
    if config.alignment >= 1 and config.seq_length % config.alignment:
        down = config.seq_length // config.alignment * config.alignment
        problems.append(
            Problem(
                "seq_length",
                f"is {config.seq_length}, no multiple of alignment {config.alignment}; "
                f"set {down or config.alignment} or {down + config.alignment}",
            )
        )
    return problems


def load_config(source: str | Path) -> PackingConfig:
    """Read a dataset YAML.

    ``path``, ``model``, ``spill_dir`` and the file of ``cooker`` may be relative to the YAML's
    folder. Raises ``ConfigError`` with all problems at once, each with its path in the file and a
    suggestion for a misspelt key.
    """
    source = Path(source)
    values = load_yaml(source)
    for name in ("path", "model", "spill_dir"):
        value = values.get(name)
        if isinstance(value, str) and (source.parent / value).exists():
            values[name] = str((source.parent / value).resolve())
    file, colon, function = str(values.get("cooker", "")).rpartition(":")
    if (source.parent / file).is_file():
        values["cooker"] = f"{(source.parent / file).resolve()}{colon}{function}"
    return parse_dataclass(PackingConfig, values)
