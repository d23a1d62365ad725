"""The summary at the top of a page."""

from html.parser import HTMLParser

from cec_mpi.report.data import page_data
from cec_mpi.report.recorded_run import Run
from cec_mpi.report.summary import summary_html
from helpers import report_data
from helpers.steps import step_of


class Read(HTMLParser):
    """Collects the tags, the text and the link targets of HTML."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.links = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name == "href"]

    def handle_data(self, data):
        self.words.append(data)


def test_the_summary_names_absences_and_delays(make_run):
    three = {"rows": (80, 80, 40, 0), "seconds": (0.08, 0.08, 0.08, 0)}
    steps = [
        step_of(0),
        step_of(1, **three, events=[{"lost": 4, "reason": "gone"}], absent_since={"lost": {4: 1}}),
        step_of(2),
    ]
    run = Run(str(make_run(steps)))
    read = Read(summary_html(page_data([run], "x")))
    said = " ".join(read.words)
    assert "Time lost" in read.words
    assert "step 1 (lost), returned in step 2" in read.words
    assert "Computing took" in said
    assert "Machines, in descending order of delay" in read.words
    assert "machine 4 was lost" in read.words  # in the table of the longest steps
    assert {"#step=1", "#machine=4"} <= set(read.links)


def test_text_of_records_is_escaped():
    hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>&\"'"
    data = report_data.report(report_data.hostile(hostile), report_data.hostile(hostile))
    read = Read(summary_html(data))
    assert {"script", "img"}.isdisjoint(read.tags)
    assert read.words.count(hostile) > 5


def test_the_summary_of_a_run_without_a_step(make_run):
    run = Run(str(make_run([])))
    read = Read(summary_html(page_data([run], "x")))
    assert "No step has been recorded yet." in read.words
    assert "table" not in read.tags


def test_several_runs_have_links_to_their_own_steps():
    data = report_data.report(report_data.run(steps=60), report_data.run(steps=20, losses=0))
    read = Read(summary_html(data))
    assert {"#run=1&step=3", "#run=2&step=3"} <= set(read.links)
    assert "Comparison of runs" in read.words
