"""The ledger of terms: a sum of terms counts only as a whole."""

from cec_mpi.core.elastic.adjoint import TermLedger


def test_a_dropped_machine_invalidates_the_terms_in_its_sums():
    ledger = TermLedger(2, (1.0, 1.0, 1.0))
    ledger.assign_plan(dict.fromkeys((1, 2, 3), ((0, 4),)))
    requests = [ledger.next_request(n) for n in (1, 2, 3)]
    terms = [request.term for request in requests]
    for request in requests[:2]:
        ledger.record_answer(request, terms[:2])
    ledger.record_answer(requests[2])
    assert ledger.answered_terms() == terms
    ledger.drop(1)
    assert ledger.answered_terms() == terms[2:]
    assert not ledger.is_done
