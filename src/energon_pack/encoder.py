# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The main path as an Energon task encoder: measure, choose, decode, assemble.

1. ``preencode_sample`` measures: raw sample to token ids and media sizes; no pixels.
2. ``build_batch`` puts in the window, which chooses the next pack from the measured candidates.
3. ``PixelReader`` decodes the media of the chosen candidates only, straight into the pack.
4. ``PackBuilder`` makes one THD row of it, the batch that ``vlm_step`` reads.
"""

from typing import Any

from megatron.energon import Cooker, Sample, SavableDataset, TaskEncoder, WorkerConfig, stateless
from megatron.energon.metadataset.loader_interface import LoadedDataset

from energon_pack.candidate import Candidate, Refused
from energon_pack.choosing.ledger import Ledger
from energon_pack.choosing.passes import resumable
from energon_pack.config import PackingConfig
from energon_pack.family import Family, load_family
from energon_pack.measure import Measurer
from energon_pack.pixels import PixelReader
from energon_pack.reading.cookers import cooked, cookers, load_cookers
from energon_pack.reading.shards import tell_unreadable
from energon_pack.reading.undecoded import disable_decoding
from energon_pack.selfcheck import self_check
from energon_pack.strict import ConfigError, Problem
from energon_pack.thd import PackBuilder, RowLayout
from energon_pack.window import WindowPackingDataset

Pack = dict[str, Any]
"""One packed row: the keys, shapes and types are those of the batch contract in the docs."""


class PackingTaskEncoder(TaskEncoder[Any, Any, Pack, Pack]):
    """Packs samples online; use it in ``build_loader`` or in Energon's ``get_train_dataset``.

    Building one runs the self-check: a probe image, clip and text go through the real processor
    and through the measurement, and a difference raises ``SelfCheckError``.
    """

    decoder = None
    cookers: tuple[Cooker[Any], ...] = cookers

    def __init__(self, config: PackingConfig, *, family: Family | None = None) -> None:
        """Load the processor of ``config.model``, unless its ``family`` is given."""
        super().__init__()
        self.config = config
        if config.cooker:
            self.cookers = load_cookers(config.cooker)
        self.family = family or load_family(
            config.model, min_pixels=config.min_pixels, max_pixels=config.max_pixels
        )
        self_check(self.family, config)
        self._measurer = Measurer(self.family, config)
        self._reader = PixelReader(self.family, config)
        self._builder = PackBuilder(
            self.family,
            RowLayout(
                seq_length=config.seq_length,
                alignment=config.alignment,
                fixed_width=config.fixed_width == "always",
            ),
            pixel_dtype=config.pixel_dtype,
            text_only_packs=config.text_only_packs,
        )

    @stateless
    def cook_crude_sample(self, sample: Any, cooker: Cooker[Any], aux: dict[str, Any]) -> Sample:
        """Cook one crude sample; one that its cooker refuses or breaks on is counted, not lost."""
        return cooked(
            sample, lambda: super(PackingTaskEncoder, self).cook_crude_sample(sample, cooker, aux)
        )

    @stateless
    def preencode_sample(self, sample: Any) -> Candidate | Refused:
        """Measure one raw sample; a bad one comes back as ``Refused``, never as an exception."""
        if isinstance(sample, Refused):  # unreadable when the run resumed
            return sample
        Ledger.work_on_in_this_process(sample.__key__, "measure")
        return self._measurer.measure(sample)

    def build_encode_sample(
        self, dataset: SavableDataset[Any], *, worker_config: WorkerConfig
    ) -> SavableDataset[Any]:
        """Measure the samples, from a source whose end and losses survive a resume."""
        return super().build_encode_sample(resumable(dataset), worker_config=worker_config)

    def build_batch(
        self,
        dataset: SavableDataset[Any],
        *,
        batch_size: int | None,
        batch_drop_last: bool = False,  # noqa: ARG002 - a last pack is never dropped
        packing_buffer_size: int | None = None,
        worker_config: WorkerConfig,
    ) -> SavableDataset[Pack]:
        """Put the window over the measured stream; each pack it yields already is the batch."""
        if batch_size not in (None, 1):
            problem = f"is {batch_size}; a pack is the whole micro batch, so it must be 1"
            raise ConfigError([Problem("batch_size", problem)])
        return WindowPackingDataset(
            dataset,
            config=self.config,
            buffer_size=packing_buffer_size or self.config.packing_buffer_size,
            decode=lambda candidate: self._reader.frames(candidate.media),
            open_pack=self._builder.open,
            worker_config=worker_config,
        )

    def _load_dataset(
        self, dataset: LoadedDataset, worker_rotation_offset: int, worker_config: WorkerConfig
    ) -> SavableDataset[Any]:
        disable_decoding(dataset)
        loaded = super()._load_dataset(dataset, worker_rotation_offset, worker_config)
        tell_unreadable(loaded)
        return loaded
