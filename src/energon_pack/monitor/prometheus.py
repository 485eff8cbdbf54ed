# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Prometheus sinks: an HTTP endpoint, and a file for node_exporter's textfile collector.

A record's ``total_bytes`` is ``energon_pack_total_bytes{rank,host}``, a worker's ``rss_bytes`` is
``energon_pack_worker_rss_bytes{rank,host,worker}``; what ends in ``_total`` is a counter, the rest
gauges, in base units. Series of workers that are gone are gone as well.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from energon_pack.monitor.snapshot import Snapshot, WorkerSnapshot, numeric
from energon_pack.optional import require

_PREFIX = "energon_pack_"
ABOUT: Final = {
    prefix + f.name: f.metadata["about"]
    for prefix, cls in ((_PREFIX, Snapshot), (f"{_PREFIX}worker_", WorkerSnapshot))
    for f in fields(cls)
    if "about" in f.metadata
}
"""Every series and its description."""


class _Collector:
    """Holds the latest record and tells it to whoever scrapes."""

    def __init__(self) -> None:
        self._core = require("prometheus_client.core", "prometheus")
        self.registry: Any = self._core.CollectorRegistry()
        self.metrics: Mapping[str, Any] = {}
        self.registry.register(self)

    def collect(self) -> Iterator[Any]:
        """Yield the latest record as metric families."""
        metrics = self.metrics  # the next record may come meanwhile
        base = [str(metrics.get("rank", "")), str(metrics.get("host", ""))]
        families: dict[str, Any] = {}
        for key, value in numeric(metrics):
            *worker, attribute = key.removeprefix("worker/").rsplit("/", 1)
            name = f"{_PREFIX}{'worker_' if worker else ''}{attribute}"
            if name not in families:
                families[name] = self._family(
                    name, ["rank", "host", *(["worker"] if worker else [])]
                )
            families[name].add_metric([*base, *worker], value)
        yield from families.values()

    def _family(self, name: str, labels: list[str]) -> Any:
        counts = name.endswith("_total")
        kind = self._core.CounterMetricFamily if counts else self._core.GaugeMetricFamily
        return kind(name, ABOUT[name], labels=labels)


class PrometheusEndpoint:
    """Serves the latest record on ``http://HOST:PORT/metrics``."""

    def __init__(self, port: int) -> None:
        """Serve on ``port``. Raises ``MissingPackageError`` without prometheus-client."""
        self._start = require("prometheus_client", "prometheus").start_http_server
        self._collector = _Collector()
        self._port = port
        self._server: Any = None
        self._thread: Any = None

    def log(self, metrics: Mapping[str, Any], step: int) -> None:  # noqa: ARG002
        """Show this record from now on."""
        self._collector.metrics = metrics
        if self._server is None:
            self._server, self._thread = self._start(self._port, registry=self._collector.registry)

    def close(self) -> None:
        """Free the port."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


class PrometheusTextfile:
    """Keeps the latest record in a file, one a rank."""

    def __init__(self, path: Path, rank: int) -> None:
        """Write ``path``, with the rank in its name above 0, as collectors read ``*.prom``.

        Raises ``MissingPackageError`` without prometheus-client.
        """
        self._write = require("prometheus_client", "prometheus").write_to_textfile
        self._collector = _Collector()
        self._path = path if rank == 0 else path.with_stem(f"{path.stem}-rank-{rank:05d}")

    def log(self, metrics: Mapping[str, Any], step: int) -> None:  # noqa: ARG002
        """Replace the file in one move."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._collector.metrics = metrics
        self._write(str(self._path), self._collector.registry)

    def close(self) -> None:
        """The last record stays for the collector."""
