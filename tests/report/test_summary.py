"""The summary at the top of a page."""

from html.parser import HTMLParser

from cec_mpi.report.data import page_data
from cec_mpi.report.recorded_run import Run
from cec_mpi.report.summary import summary_html
from helpers import report_data
from helpers.steps import step_of


class SummaryParser(HTMLParser):
    """A parser that collects the tags, the texts and the link targets of HTML."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.links = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name == "href"]

    def handle_data(self, data):
        self.texts.append(data)


def test_the_summary_names_absences_and_delays(make_run):
    without_4 = {"rows": (80, 80, 40, 0), "seconds": (0.08, 0.08, 0.08, 0)}
    steps = [
        step_of(0),
        step_of(
            1, **without_4, events=[{"lost": 4, "reason": "gone"}], absent_since={"lost": {4: 1}}
        ),
        step_of(2),
    ]
    run = Run(str(make_run(steps)))
    parser = SummaryParser(summary_html(page_data([run], "x")))
    joined = " ".join(parser.texts)
    assert "Time lost" in parser.texts
    assert "step 1 (lost), returned in step 2" in parser.texts
    assert "Computing took" in joined
    assert "Machines, in descending order of delay" in parser.texts
    assert "machine 4 was lost" in parser.texts  # in the table of the longest steps
    assert {"#step=1", "#machine=4"} <= set(parser.links)


def test_text_of_records_is_escaped():
    hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>&\"'"
    runs = [report_data.make_hostile_run(hostile) for _ in range(2)]
    data = report_data.make_report(*runs)
    parser = SummaryParser(summary_html(data))
    assert {"script", "img"}.isdisjoint(parser.tags)
    assert parser.texts.count(hostile) > 5


def test_the_summary_of_a_run_without_steps_has_no_table(make_run):
    run = Run(str(make_run([])))
    parser = SummaryParser(summary_html(page_data([run], "x")))
    assert "No step has been recorded yet." in parser.texts
    assert "table" not in parser.tags


def test_several_runs_have_links_to_their_own_steps():
    runs = report_data.make_run(steps=60), report_data.make_run(steps=20, losses=0)
    data = report_data.make_report(*runs)
    parser = SummaryParser(summary_html(data))
    assert {"#run=1&step=3", "#run=2&step=3"} <= set(parser.links)
    assert "Comparison of runs" in parser.texts
