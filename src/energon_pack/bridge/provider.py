# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The packed dataset as Megatron-Bridge's ``cfg.dataset``: flat fields, the guard, the loaders.

1. ``use_packing`` puts it into a config and attaches it to that config.
2. Megatron-Bridge's ``validate`` calls ``finalize`` after every override: the alignment is grown to
   the final topology, and the guard reads the final config.
3. Megatron-Bridge's set-up calls ``build_datasets``, which refuses unless 2. has happened.
"""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any, Literal

from megatron.bridge.data.base import DatasetBuildContext, DatasetProvider
from megatron.bridge.utils.common_utils import get_rank_safe
from megatron.bridge.utils.instantiate_utils import register_allowed_target_prefix
from megatron.energon import WorkerConfig

from energon_pack.bridge.settle import settle
from energon_pack.bridge.stream import EvalStream, TrainStream
from energon_pack.config import PackingConfig
from energon_pack.encoder import PackingTaskEncoder
from energon_pack.errors import UserError
from energon_pack.facts import RunFacts
from energon_pack.family import Family
from energon_pack.guard import Finding, run_rules
from energon_pack.loader import (
    PackLoader,
    Split,
    build_loader,
    default_worker_config,
)
from energon_pack.overlap import switch_off_ep_overlap
from energon_pack.read_facts import read_facts
from energon_pack.reading.prepared import check_prepared
from energon_pack.strict import parse_dataclass

logger = logging.getLogger(__name__)

# A config's YAML names its classes, and Megatron-Bridge builds only those of packages it was told.
register_allowed_target_prefix("energon_pack.bridge.")


class ProviderError(UserError):
    """A packed dataset that cannot be trained on as it stands in its config."""


def _flat(field: dataclasses.Field[Any]) -> tuple[str, Any, Any]:
    """Return a setting as a field that an override can change; a nested one becomes a mapping."""
    if dataclasses.is_dataclass(field.type):
        nested = field.type
        mapping = dataclasses.field(default_factory=lambda: dataclasses.asdict(nested()))  # type: ignore[operator]
        return field.name, dict[str, Any], mapping
    return field.name, field.type, dataclasses.field(default=field.default)


_PackingFields: Any = dataclasses.make_dataclass(
    "_PackingFields", map(_flat, dataclasses.fields(PackingConfig)), kw_only=True
)


@dataclasses.dataclass(kw_only=True)
class PackedDatasetProvider(_PackingFields, DatasetProvider):
    """The settings of ``PackingConfig``, each a plain field: ``dataset.packing_buffer_size=32``.

    Make it with ``use_packing(cfg, data)``. ``cost`` and ``monitor`` are mappings
    (``dataset.monitor.fail_total=90%``).
    """

    dataloader_type: Literal["external"] = "external"
    """Megatron-Bridge iterates what ``build_datasets`` returns."""
    skip_rules: dict[str, str] = dataclasses.field(default_factory=dict)
    """Guard rules that are not to stop or warn: their code, and the reason."""

    def __post_init__(self) -> None:
        """Start unattached: what a YAML file describes has to pass through ``use_packing``."""
        self._cfg: Any = None
        self._facts: RunFacts | None = None
        self._told: set[Finding] = set()
        self.train_stream: TrainStream | None = None
        self.valid_stream: EvalStream | None = None

    @classmethod
    def from_config(
        cls, config: PackingConfig, skip_rules: Mapping[str, str] | None = None
    ) -> "PackedDatasetProvider":
        """Take over the settings of ``config``."""
        return cls(**dataclasses.asdict(config), skip_rules=dict(skip_rules or {}))

    def packing_config(self) -> PackingConfig:
        """Return the settings, checked; raises ``ConfigError`` with every problem."""
        names = (field.name for field in dataclasses.fields(PackingConfig))
        return parse_dataclass(PackingConfig, {name: getattr(self, name) for name in names})

    def attach(self, cfg: Any) -> None:
        """Belong to ``cfg``, whose ``dataset`` this is: its guard runs when it is validated."""
        self._cfg, self._facts = cfg, None

    def finalize(self) -> None:
        """Settle what the final topology asks for and run the guard; raises all errors at once."""
        super().finalize()
        if self._cfg is None or self._cfg.dataset is not self:
            return
        for change in settle(self._cfg):
            logger.info("%s: %r to %r: %s", change.path, change.before, change.after, change.why)
        self._facts = self.check()
        switch_off_ep_overlap(self._cfg)

    def check(self) -> RunFacts:
        """Run the guard on the config as it stands; log each finding once, raise on errors."""
        if self.dataloader_type != "external":
            raise ProviderError(
                f"dataset.dataloader_type is {self.dataloader_type!r}; packs come from Energon's "
                "own workers, so it must stay 'external'"
            )
        facts = read_facts(self._cfg, self.packing_config())
        report = run_rules(facts, self.skip_rules)
        report.raise_errors()
        if get_rank_safe() == 0:
            for finding in dict.fromkeys(report.findings):
                if finding not in self._told:
                    level = logging.WARNING if finding.severity == "warning" else logging.INFO
                    logger.log(level, "%s", finding)
        self._told.update(report.findings)
        return facts

    def resolved_config(self) -> PackingConfig:
        """Return the settings with ``fixed_width: auto`` resolved; raises when no guard has run."""
        if self._facts is None:
            raise ProviderError(
                "no guard has seen the config that this dataset stands in, as after a round trip "
                "through YAML or a copy; call use_packing(cfg, cfg.dataset.packing_config()) first"
            )
        width: Literal["always", "never"] = "always" if self._facts.fixed_width else "never"
        return dataclasses.replace(self.packing_config(), fixed_width=width)

    def build_datasets(
        self, context: DatasetBuildContext
    ) -> tuple[TrainStream | None, EvalStream | None, None]:
        """Open the splits that the run reads; there is no test split."""
        config = self.resolved_config()
        encoder = PackingTaskEncoder(config)
        self._check_family(encoder.family)

        def open_split(split: Split) -> PackLoader:
            workers = _worker_config(config, split, context.pg_collection)
            return build_loader(config.unmonitored(), split, encoder=encoder, worker_config=workers)

        if context.train_samples > 0:
            self.train_stream = TrainStream(open_split("train"))
        if context.valid_samples > 0:
            check_prepared(config.path, "val")
            ranks = _worker_config(config, "val", context.pg_collection).world_size
            self.valid_stream = EvalStream(
                lambda: open_split("val"), packs_per_evaluation=self._packs_per_evaluation(ranks)
            )
        return self.train_stream, self.valid_stream, None

    def _packs_per_evaluation(self, ranks: int) -> int:
        validation = self._cfg.validation
        micro_batches = validation.eval_global_batch_size // validation.eval_micro_batch_size
        return int(validation.eval_iters * micro_batches // ranks)

    def _check_family(self, family: Family) -> None:
        """Refuse a processor of another model: its tokens and positions would be wrong, quietly."""
        assert self._facts is not None
        model = self._facts.model.family
        if family.name != model:
            raise ProviderError(
                f"dataset.model {self.model!r} is a {family.name} processor, but the config trains "
                f"a {model} model; set dataset.model to that model's processor"
            )
        for name in ("image_token_id", "video_token_id"):
            expected = getattr(self._cfg.model, name, None)
            if expected not in (None, getattr(family, name)):
                raise ProviderError(
                    f"dataset.model {self.model!r} has {name} {getattr(family, name)}, but the "
                    f"model looks for {expected}; set model.{name}, or take its own processor"
                )


def _worker_config(config: PackingConfig, split: Split, groups: Any) -> WorkerConfig:
    """Return the data-parallel rank: TP and CP ranks of one replica have the same."""
    worker_config = default_worker_config(config, split)
    if groups is None:
        return worker_config
    return dataclasses.replace(
        worker_config,
        rank=groups.dp.rank(),
        world_size=groups.dp.size(),
        data_parallel_group=groups.dp,
    )
