"""Memory that a process may use, of trees of control groups as there are."""

import os

from cec_mpi.processes.places import memory_here, place_here

ALL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def made(tmp_path, line, **limits):
    (tmp_path / "cgroup").write_text(line)
    for name, text in limits.items():
        path = tmp_path / "fs" / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return memory_here(tmp_path / "cgroup", tmp_path / "fs")


def test_the_least_of_a_group_and_those_that_it_is_in(tmp_path):
    limits = {"job__step__memory_DOT_max": "max\n", "job__memory_DOT_max": "4096\n"}
    assert made(tmp_path, "0::/job/step\n", **limits) == 4096


def test_groups_of_the_first_version(tmp_path):
    line = "9:cpu,cpuacct:/other\n4:memory:/job\n"
    limits = {"memory__job__memory_DOT_limit_in_bytes": "8192\n"}
    assert made(tmp_path, line, **limits) == 8192
    assert made(tmp_path, line, memory__job__memory_DOT_limit_in_bytes="9" * 20) == ALL


def test_without_groups_it_is_that_of_the_node(tmp_path):
    assert made(tmp_path, "0::/job\n") == ALL
    assert memory_here(tmp_path / "nothing", tmp_path) == ALL
    assert 0 < memory_here() <= ALL
    assert place_here().memory == memory_here()
