"""Limits of control groups on processors and memory, read from files of a test directory."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cec_mpi.runtime.processes.resources import detect_process
from cec_mpi.store.limits import count_processors, cpu_quota, free_memory, total_memory
from helpers.needs import CPU_GROUPS
from helpers.waiting import LIMIT

PHYSICAL_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

# Lines of mountinfo: a mount point, and the group that is mounted there.
V2 = "31 23 0:28 {root} {at} rw,nosuid shared:9 - cgroup2 cgroup rw,nsdelegate"
CPU = "32 31 0:29 {root} {at}/cpu rw - cgroup cgroup rw,cpu,cpuacct"
MEMORY = "35 31 0:32 {root} {at}/memory rw - cgroup cgroup rw,memory"


@pytest.fixture
def process(tmp_path):
    """Return a function that writes the groups, mounts and control files of a process."""

    def make_process(groups, files, mounts=(V2,), root="/", at="fs"):
        (tmp_path / "cgroup").write_text(groups)
        point = str(tmp_path / at)
        lines = [line.format(root=root, at=point.replace(" ", r"\040")) for line in mounts]
        other_mounts = ["22 1 8:1 / / rw - ext4 /dev/sda rw", "23 1 0:5 / /sys rw - sysfs sysfs rw"]
        (tmp_path / "mountinfo").write_text("\n".join([*other_mounts, *lines]) + "\n")
        for name, text in files.items():
            path = Path(point, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        return tmp_path

    return make_process


POD = {"pod/cpu.max": "max 100000", "pod/box/cpu.max": "max 100000"}
QUOTA = {"cpu.max": "200000 100000"}  # two processors


@pytest.mark.parametrize(
    ("groups", "files", "options", "processors"),
    [
        ("0::/pod/box\n", POD, {}, math.inf),
        ("0::/pod/box\n", POD | {"pod/box/cpu.max": "150000 100000"}, {}, 1.5),
        ("0::/docker/12\n", QUOTA, {"root": "/docker/12"}, 2),  # only this group is mounted
        ("0::/../34\n", QUOTA, {"root": "/.."}, 2),
        ("0::/elsewhere\n", QUOTA, {"root": "/docker/12"}, 2),  # a path outside the mount
        (
            "0::/docker/12/sub\n",
            QUOTA | {"sub/cpu.max": "100000 100000"},
            {"root": "/docker/12"},
            1,
        ),
        ("0::/\n", QUOTA, {"at": "f s"}, 2),  # a mount point with a space
        ("0::/job\n", {}, {}, math.inf),
    ],
)
def test_the_smallest_quota_of_a_group_and_its_ancestors_applies(
    process, groups, files, options, processors
):
    assert cpu_quota(process(groups, files, **options)).processors == processors


def test_the_quota_of_a_group_of_version_1_applies(process):
    files = {"cpu/job/cpu.cfs_quota_us": 250_000, "cpu/job/cpu.cfs_period_us": 100_000}
    files |= {"cpu/cpu.cfs_quota_us": -1, "cpu/cpu.cfs_period_us": 100_000}
    groups = "9:cpu,cpuacct:/job/step\n4:memory:/other\n0::/\n"
    assert cpu_quota(process(groups, files, (V2, MEMORY, CPU))).processors == 2.5


def test_processes_that_share_a_quota_have_the_same_group(process):
    files = dict.fromkeys(("a/cpu.max", "b/cpu.max"), "100000 100000")
    quotas = [cpu_quota(process(f"0::/{path}\n", files)) for path in ("a", "a/x", "b", "c")]
    assert quotas[0] == quotas[1] != quotas[2]
    assert (0 in quotas[0], quotas[3].group) == (False, 0)


def test_without_groups_there_is_no_quota(tmp_path):
    assert cpu_quota(tmp_path / "nothing").limit(8) == 8
    assert 1 <= count_processors() <= len(os.sched_getaffinity(0))


@pytest.fixture
def group():
    """A control group with a quota of half a processor."""
    path = CPU_GROUPS / f"cec_mpi-test-{os.getpid()}"
    path.mkdir()
    try:
        if (path / "cpu.max").exists():
            (path / "cpu.max").write_text("50000 100000")
        else:
            (path / "cpu.cfs_quota_us").write_text("50000")
        yield path
    finally:
        path.rmdir()


@pytest.mark.needs("cpu-groups")
def test_a_process_has_the_quota_of_its_group(group):
    code = "from cec_mpi.store.limits import *; print(cpu_quota().processors, count_processors())"
    words = ["sh", "-c", 'echo $$ >"$0"/cgroup.procs && exec "$@"', group, sys.executable, "-c"]
    process = subprocess.run(
        [*words, code], capture_output=True, text=True, check=True, timeout=LIMIT
    )
    assert process.stdout.split() == ["0.5", "1"]


def test_the_smallest_memory_limit_of_a_group_and_its_ancestors_applies(process):
    files = {"job/step/memory.max": "max", "job/memory.max": 4096}
    assert total_memory(process("0::/job/step\n", files)) == 4096


def test_the_memory_limit_of_a_group_of_version_1_applies(process):
    groups = "9:cpu,cpuacct:/other\n4:memory:/job\n"
    name = "memory/job/memory.limit_in_bytes"
    assert total_memory(process(groups, {name: 8192}, (CPU, MEMORY))) == 8192
    assert total_memory(process(groups, {name: "9" * 20}, (CPU, MEMORY))) == PHYSICAL_MEMORY


def test_free_memory_of_a_group_includes_the_page_cache(process):
    files = {"job/memory.max": 9 << 30, "job/memory.current": 5 << 30}
    directory = process("0::/job\n", files)
    assert free_memory(directory / "self") == PHYSICAL_MEMORY  # a process without files in /proc
    (directory / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    3145728 kB\n")
    (directory / "self").mkdir()
    for name in ("cgroup", "mountinfo"):
        (directory / name).rename(directory / "self" / name)
    assert free_memory(directory / "self") == 3 << 30
    (directory / "fs" / "job" / "memory.current").write_text(f"{8 << 30}\n")
    assert free_memory(directory / "self") == 1 << 30
    statistics = f"anon 5\ninactive_file {512 << 20}\nactive_file {512 << 20}\n"
    (directory / "fs" / "job" / "memory.stat").write_text(statistics)
    assert free_memory(directory / "self") == 2 << 30


def test_without_groups_memory_is_not_limited(process, tmp_path):
    assert total_memory(process("0::/job\n", {})) == PHYSICAL_MEMORY
    assert total_memory(tmp_path / "nothing") == PHYSICAL_MEMORY
    assert 0 < total_memory() <= PHYSICAL_MEMORY
    assert detect_process().memory == total_memory()
