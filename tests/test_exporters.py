# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0

import json
import logging
import re
import socket
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from test_levels import snapshot

from energon_pack.config import MonitorConfig
from energon_pack.monitor.exporters import (
    FanOut,
    JsonLinesSink,
    LogSink,
    TensorBoardSink,
    WandbSink,
    rank_file,
    sinks_of,
)
from energon_pack.monitor.prometheus import ABOUT, PrometheusEndpoint, PrometheusTextfile
from energon_pack.monitor.snapshot import Event, Snapshot, from_record
from energon_pack.optional import MissingPackageError

MIB = 1 << 20


@pytest.fixture
def record():
    return snapshot(rss=(120, 340), total=500, used=700).record()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def samples(text):
    return {
        (sample.name, sample.labels.get("worker")): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_of_the_endpoint_parses_and_has_every_worker(record):
    port = free_port()
    sink = PrometheusEndpoint(port)
    sink.log(record, 7)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        sink.close()
    found = samples(text)
    assert found["energon_pack_total_bytes", None].value == 500 * MIB
    worker = found["energon_pack_worker_rss_bytes", "1"]
    assert worker.value == 340 * MIB
    assert worker.labels == {"rank": "0", "host": "node", "worker": "1"}
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["energon_pack_worker_cpu_seconds"].type == "counter"
    assert families["energon_pack_worker_rss_bytes"].type == "gauge"
    assert "Resident memory" in families["energon_pack_worker_rss_bytes"].documentation
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)


def test_prometheus_names_follow_its_conventions(record, tmp_path):
    sink = PrometheusTextfile(tmp_path / "memory.prom", 0)
    sink.log(record, 0)
    families = list(text_string_to_metric_families((tmp_path / "memory.prom").read_text()))
    assert len(families) > 20
    for family in families:
        assert family.name.startswith("energon_pack_")
        assert family.documentation != family.name, "no help text"
        for sample in family.samples:
            assert (sample.name.endswith("_total")) == (family.type == "counter")


@pytest.mark.parametrize("page", ["grafana.json", "memory.md"])
def test_the_dashboard_and_the_docs_ask_for_series_that_exist(page):
    text = (Path(__file__).parent.parent / "docs" / page).read_text()
    asked = set(re.findall(r"\benergon_pack_\w+", text))
    assert len(asked) >= 5
    assert asked <= set(ABOUT)


def test_a_textfile_is_replaced_and_gone_workers_are_gone(record, tmp_path):
    sink = PrometheusTextfile(tmp_path / "memory.prom", 3)
    sink.log(record, 0)
    sink.log(snapshot(rss=(50,)).record(), 1)
    (file,) = tmp_path.iterdir()
    assert file.name == "memory-rank-00003.prom"
    found = samples(file.read_text())
    assert found["energon_pack_worker_rss_bytes", "0"].value == 50 * MIB
    assert ("energon_pack_worker_rss_bytes", "1") not in found


def test_tensorboard_event_files_read_back(record, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = TensorBoardSink(tmp_path)
    sink.log(record, 7)
    sink.log({**record, "worker/1/rss_bytes": 400 * MIB, "time": 60.0}, 9)
    sink.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    scalars = events.Tensors("memory/worker/1/rss_bytes")
    assert [event.step for event in scalars] == [7, 9]
    assert scalars[1].tensor_proto.float_val[0] == 400 * MIB
    assert scalars[1].wall_time == 60.0
    assert "memory/total_bytes" in events.Tags()["tensors"]


def test_wandb_logs_offline(record, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    sink = WandbSink("memory-test", rank=2)
    sink.log(record, 7)
    name = sink._run.name
    sink.close()
    assert name == "memory rank 2"
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    written = re.compile(rb"memory/worker/1/rss_bytes.{1,9}3\.5651584e\+08", re.DOTALL)
    until = time.monotonic() + 20
    while not written.search(file.read_bytes()):  # its own process writes it
        assert time.monotonic() < until
        time.sleep(0.1)


def test_json_lines_round_trip(tmp_path):
    seen = snapshot(rss=(120, 340), total=500)
    seen = Snapshot(**{name: getattr(seen, name) for name in Snapshot.__slots__} | {
        "events": (Event(time=1.0, kind="died", message="worker 1 was killed", worker="1"),)
    })  # fmt: skip
    sink = JsonLinesSink(tmp_path / "deep" / "run.jsonl")
    sink.log(seen.record(), seen.step)
    (line,) = (tmp_path / "deep" / "run.jsonl").read_text().splitlines()
    sink.close()
    assert from_record(json.loads(line)) == seen


def test_a_later_versions_fields_do_no_harm(record):
    later = {**record, "new_bytes": 1, "worker/0/new_bytes": 1}
    assert from_record(later) == from_record(record)


def test_the_log_has_a_line_a_minute(record, caplog):
    caplog.set_level(logging.INFO)
    sink = LogSink()
    for step in range(5):
        sink.log(record, step)
    (line,) = caplog.messages
    assert line.startswith("0 packs, memory of rank 0 on node: 500 MiB")
    sink.log({**record, "ended": True}, 5)
    assert len(caplog.messages) == 2


class Failing:
    def log(self, *_):
        raise OSError("disk full")

    def close(self):
        raise OSError("disk full")


def test_a_failing_sink_is_named_once_and_the_others_go_on(record, tmp_path, caplog):
    file = tmp_path / "run.jsonl"
    sinks = FanOut([Failing(), JsonLinesSink(file)])
    for step in range(3):
        sinks.log(record, step)
    sinks.close()
    assert len(file.read_text().splitlines()) == 3
    assert caplog.messages == ["Failing failed and will be tried again: OSError('disk full')"]


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [
        ("tensorboard.summary", lambda: TensorBoardSink("."), "tensorboard"),
        ("wandb", lambda: WandbSink("project", 0), "wandb"),
        ("prometheus_client", lambda: PrometheusEndpoint(1), "prometheus"),
    ],
)
def test_a_missing_package_is_an_error_with_the_command_to_install_it(
    module, make, extra, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackageError, match=rf"pip install 'energon-pack\[{extra}\]'"):
        make()


def test_the_config_chooses_the_sinks_and_ranks_label_themselves(tmp_path):
    config = MonitorConfig(
        jsonl=str(tmp_path / "lines"),
        tensorboard=str(tmp_path / "board"),
        prometheus_port=9400,
        prometheus_textfile=str(tmp_path / "memory.prom"),
    )
    names = [type(sink).__name__ for sink in sinks_of(config, rank=3)]
    assert names == [
        "LogSink",
        "JsonLinesSink",
        "TensorBoardSink",
        "PrometheusEndpoint",
        "PrometheusTextfile",
    ]
    assert sinks_of(MonitorConfig(log=False), rank=0) == []
    assert not list(tmp_path.iterdir()), "a sink opened a file before its first record"


def test_each_rank_has_a_file_of_its_own(tmp_path):
    assert rank_file(tmp_path, 3) == tmp_path / "rank-00003.jsonl"
    assert rank_file(tmp_path / "run.jsonl", 0) == tmp_path / "run.jsonl"
    assert rank_file(tmp_path / "run.jsonl", 3) == tmp_path / "run-rank-00003.jsonl"
