# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0

import json
import os
import re
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from energon_pack.memory import (
    cgroup_levels,
    read_ceiling,
    read_footprint,
    read_oom_kills,
    read_process,
    read_shared_memory,
)

MIB = 1 << 20
LIMIT = 400 * MIB


@contextmanager
def child(code: str):
    """Run Python ``code`` in a process that waits for its input to end after printing a line."""
    program = (
        f"import os, sys; first = os.getpid()\n{code}\n"
        "if os.getpid() == first: print('ready', flush=True)\n"
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        yield psutil.Process(process.pid)
    finally:
        process.communicate()


def smaps_sum(pid: int, field: str) -> int:
    """Add up a field over all mappings: another count of the kernel's than the one read."""
    text = Path(f"/proc/{pid}/smaps").read_text()
    return 1024 * sum(map(int, re.findall(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)))


def test_resident_memory_agrees_with_the_sum_over_proc_smaps_within_2_percent():
    with child("kept = b'x' * (200 << 20)") as process:
        memory = read_process(process)
        assert memory.rss_bytes > 200 * MIB
        assert memory.rss_bytes == pytest.approx(smaps_sum(process.pid, "Rss"), rel=0.02)
        assert memory.peak_rss_bytes >= memory.rss_bytes * 0.98


def test_unique_memory_is_that_which_fork_does_not_share():
    fork = """
import os
kept = b"x" * (100 << 20)
wait, tell = os.pipe()
if os.fork():
    os.read(wait, 1)
else:
    more = b"y" * (50 << 20)
    os.write(tell, b"!")
"""
    with child(fork) as parent:
        (forked,) = parent.children()
        memory, footprint = read_process(forked), read_footprint(forked)
        assert memory.rss_bytes > 150 * MIB
        assert 50 * MIB <= footprint.uss_bytes < 80 * MIB
        assert footprint.uss_bytes < footprint.pss_bytes < memory.rss_bytes
        assert footprint.pss_bytes == pytest.approx(smaps_sum(forked.pid, "Pss"), rel=0.02)
        forked.kill()


def test_mapped_files_are_not_held_and_shared_memory_is(tmp_path):
    file = tmp_path / "shard"
    file.write_bytes(b"x" * (50 << 20))
    read_file = (
        f"import mmap; f = open({str(file)!r}); m = mmap.mmap(f.fileno(), 0, prot=1); len(m[:])"
    )
    shared = "import mmap; m = mmap.mmap(-1, 50 << 20); m[:] = b'x' * (50 << 20)"
    with child("pass") as plain, child(read_file) as reader, child(shared) as sharer:
        base = read_process(plain)
        assert read_process(reader).rss_bytes > base.rss_bytes + 45 * MIB
        assert read_process(reader).held_bytes < base.held_bytes + 10 * MIB
        assert read_process(sharer).held_bytes > base.held_bytes + 45 * MIB
        assert read_process(sharer).shared_bytes > base.shared_bytes + 45 * MIB


def test_a_process_that_has_ended_is_an_error_not_a_zero():
    with child("pass") as process:
        process.kill()
        psutil.wait_procs([process], timeout=0.1)
        with pytest.raises(psutil.Error):
            read_process(process)


def test_shared_memory_counts_what_is_put_into_it():
    before = read_shared_memory().used_bytes
    file = Path("/dev/shm") / f"energon-pack-test-{uuid.uuid4()}"
    try:
        file.write_bytes(b"x" * (30 << 20))
        assert 25 * MIB < read_shared_memory().used_bytes - before < 300 * MIB
    finally:
        file.unlink()
    assert read_shared_memory("/no/such/folder") is None


@contextmanager
def real_cgroup(limit_bytes: int):
    """Make a memory cgroup below this process's own; skip where this machine forbids it."""
    own = next(cgroup_levels(), None)
    if own is None:
        pytest.skip("this machine has no memory cgroup")
    group = own / f"energon-pack-test-{uuid.uuid4().hex[:8]}"
    limit = "memory.limit_in_bytes" if (own / "memory.limit_in_bytes").exists() else "memory.max"
    try:
        group.mkdir()
        (group / limit).write_text(str(limit_bytes))
    except OSError as error:
        group.rmdir() if group.exists() else None
        pytest.skip(f"this machine lets no test make a memory cgroup: {error}")
    try:
        yield group
    finally:
        group.rmdir()


def in_cgroup(group: Path, code: str) -> subprocess.CompletedProcess:
    """Run Python ``code`` in a process that lives in ``group`` from its first line on."""
    enter = f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
    return subprocess.run(
        [sys.executable, "-c", enter + code],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_a_real_cgroups_limit_is_found_and_its_page_cache_is_not_counted(tmp_path):
    file = tmp_path / "shard"
    code = f"""
import json
from energon_pack.memory import read_ceiling
kept = b"x" * (100 << 20)
with open({str(file)!r}, "wb") as out:
    out.write(bytes(150 << 20))
    out.flush()
    os.fsync(out.fileno())
ceiling = read_ceiling()
print(json.dumps([ceiling.source, ceiling.limit_bytes, ceiling.used_bytes]))
"""
    with real_cgroup(LIMIT) as group:
        result = in_cgroup(group, code)
        assert result.returncode == 0, result.stderr
        source, limit, used = json.loads(result.stdout)
    assert (source, limit) == ("cgroup", LIMIT)
    assert 100 * MIB < used < 145 * MIB


def test_a_kill_by_the_real_kernel_for_want_of_memory_is_counted():
    with real_cgroup(60 * MIB) as group:
        # Without swap the kernel can only kill.
        result = in_cgroup(group, "kept = b'x' * (200 << 20)")
        assert result.returncode == -9
        with child("pass") as process:
            (group / "cgroup.procs").write_text(str(process.pid))
            assert read_oom_kills(process.pid) == 1


def fake_proc(folder: Path, cgroup: str, mountinfo: str) -> Path:
    own = folder / "proc" / "self"
    own.mkdir(parents=True)
    (own / "cgroup").write_text(cgroup)
    (own / "mountinfo").write_text(mountinfo)
    return folder / "proc"


def cgroup_v2(folder: Path, limit: str, current: int, **stat: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(limit)
    (folder / "memory.current").write_text(str(current))
    (folder / "memory.stat").write_text("".join(f"{k} {v}\n" for k, v in stat.items()))


def test_of_nested_version_2_cgroups_the_tightest_binds_and_its_neighbours_count(tmp_path):
    mount = tmp_path / "cgroup"
    cgroup_v2(
        mount / "job", str(200 * MIB), 150 * MIB, inactive_file=30 * MIB, active_file=20 * MIB
    )
    cgroup_v2(mount / "job" / "step", "max", 40 * MIB)
    cgroup_v2(mount / "job" / "step" / "task", str(200 * MIB), 10 * MIB)
    line = f"31 23 0:28 / {mount} rw - cgroup2 cgroup2 rw\n"
    proc = fake_proc(tmp_path, "0::/job/step/task\n", line)
    ceiling = read_ceiling(proc=proc)
    assert (ceiling.source, ceiling.limit_bytes) == ("cgroup", 200 * MIB)
    assert ceiling.used_bytes == 100 * MIB
    assert ceiling.left_bytes == 100 * MIB


def test_in_a_container_the_mount_itself_is_the_containers_cgroup(tmp_path):
    mount = tmp_path / "cgroup"
    cgroup_v2(mount, str(300 * MIB), 50 * MIB)
    line = f"31 23 0:28 /docker/abc {mount} rw - cgroup2 cgroup2 rw\n"
    proc = fake_proc(tmp_path, "0::/../../elsewhere\n", line)
    assert read_ceiling(proc=proc).limit_bytes == 300 * MIB


def test_without_a_cgroup_limit_the_machine_is_the_limit(tmp_path):
    mount = tmp_path / "cgroup"
    cgroup_v2(mount / "job", "max", 50 * MIB)
    proc = fake_proc(tmp_path, "0::/job\n", f"31 23 0:28 / {mount} rw - cgroup2 cgroup2 rw\n")
    ceiling = read_ceiling(proc=proc)
    assert (ceiling.source, ceiling.limit_bytes) == ("machine", psutil.virtual_memory().total)


def test_without_proc_files_the_machine_is_the_limit(tmp_path):
    assert read_ceiling(proc=tmp_path).source == "machine"
    assert list(cgroup_levels(os.getpid(), tmp_path)) == []
