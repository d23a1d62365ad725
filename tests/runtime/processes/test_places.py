"""Where processes run that were not started together: what each sees alone, completed."""

from __future__ import annotations

from dataclasses import replace

from cec_mpi.runtime.processes.places import Place, combine_places, detect_place, ranks_by_node


def alone(network, own, cores=8, first=0):
    """What a process sees that may use so many of the cores of its computer."""
    numbers = tuple(range(first, first + own))
    return Place("node", 1, own, own, unbound_cores=cores, network=network, core_numbers=numbers)


def test_processes_of_one_computer_share_its_cores():
    places = combine_places([alone("a", 8) for _ in range(3)])
    assert [(place.ranks, place.cores, place.threads) for place in places] == [(3, 8, 2)] * 3


def test_processes_that_are_bound_have_the_cores_that_they_are_bound_to():
    places = combine_places([alone("a", 2, first=2 * k) for k in range(3)])
    assert [(place.cores, place.threads) for place in places] == [(6, 2)] * 3
    places = combine_places([alone("a", 2) for _ in range(3)])
    assert [(place.cores, place.threads) for place in places] == [(2, 1)] * 3


def test_more_processes_than_cores_have_one_thread_each():
    places = combine_places([alone("a", 2, cores=2) for _ in range(5)])
    assert [(place.cores, place.threads) for place in places] == [(2, 1)] * 5


def test_computers_differ_by_their_networks_not_their_names():
    places = combine_places([alone(network, 8) for network in "abbac"])
    assert [place.node for place in places] == [0, 1, 1, 0, 4]
    assert [place.ranks for place in places] == [2, 2, 2, 2, 1]
    assert list(ranks_by_node(places).values()) == [[0, 3], [1, 2], [4]]


def test_processes_of_one_computer_with_quotas_of_their_own_do_not_share():
    """As containers that use the network of their computer."""
    places = combine_places([replace(alone("a", 2, cores=2), group=n) for n in (7, 7, 9)])
    assert [(place.ranks, place.cores, place.threads) for place in places] == [
        (2, 2, 1),
        (2, 2, 1),
        (1, 2, 2),
    ]


def test_a_process_counts_its_own_cores_where_nothing_else_is_known():
    (place,) = combine_places([alone("a", 4, cores=0)])
    assert (place.cores, place.threads) == (4, 4)


def test_this_process_is_alone_on_its_computer():
    here = detect_place()
    assert combine_places([here])[0].threads == here.threads
    two = combine_places([here, replace(here, network="elsewhere")])
    assert [place.ranks for place in two] == [1, 1]
    assert combine_places([]) == []
