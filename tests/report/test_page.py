"""The page of a report in a browser, with pointer and keys."""

import base64
import re
from functools import cache
from itertools import pairwise

import pytest

from cec_mpi.report.data import page_data
from cec_mpi.report.page import render_page
from cec_mpi.report.recorded_run import Run
from cec_mpi.text import printable
from helpers import report_data
from helpers.browser import Browser, start_driver

pytestmark = pytest.mark.needs("chromium")
HOSTILE = "</script><img src=x onerror=\"document.title='injected'\">&amp;\u2028"


@cache
def one_run():
    return render_page(report_data.make_report(report_data.make_run()))


@cache
def two_runs():
    first = report_data.make_run(name="results/heterogeneous", steps=600)
    second = report_data.make_run(name="results/cyclic", steps=500, slowdown=1.5, seed=2)
    return render_page(report_data.make_report(first, second))


@cache
def many_steps():
    """Return a page whose steps are in bins of four."""
    return render_page(report_data.make_report(report_data.make_run(steps=10_000)))


@cache
def many_machines():
    run = report_data.make_run(speeds=(1,) * 500, recovery=20, steps=60, losses=0)
    return render_page(report_data.make_report(run))


class Page(Browser):
    """The page of a report."""

    def __init__(self, driver, directory):
        super().__init__(driver)
        self._path = directory / "report.html"

    def open(self, text, *, width=1200, dark=False, fragment=""):
        self._path.write_text(text, encoding="utf-8")
        self.cdp("Emulation.setScriptExecutionDisabled", value=False)
        self.driver.get("about:blank")
        self.load(f"{self._path.as_uri()}{fragment}", width=width, dark=dark)
        self.wait_until_ready()
        return self

    def wait_until_ready(self):
        self.until(lambda: self.run("return document.documentElement.dataset.ready"))

    def find(self, css):
        return self.driver.find_element("css selector", css)

    def all(self, css):
        return self.driver.find_elements("css selector", css)

    def text(self, css):
        return self.find(css).get_attribute("textContent")

    def click(self, css):
        self.run("arguments[0].scrollIntoView({block: 'center'})", self.find(css))
        self.find(css).click()

    def press(self, css, *keys):
        self.find(css).send_keys(*keys)

    def picture(self, css):
        return self.run("return document.querySelector(arguments[0]).toDataURL()", css)


@pytest.fixture(scope="module")
def driver():
    with start_driver() as driver:
        yield driver


@pytest.fixture
def browser(driver, tmp_path):
    page = Page(driver, tmp_path)
    page.read_requests()
    page.read_console()
    yield page
    assert page.read_console() == []
    requests = page.read_requests()
    assert [url for url in requests if not url.startswith(("file:", "about:", "data:"))] == []


def test_the_machine_table_fits_narrow_screens_and_paper(browser):
    """A row begins with number, delay and absences; no text extends beyond the table."""
    run = report_data.make_run(speeds=(1,) * 20, steps=200)
    run["by_machine"]["rows"][0][1:3] = 3.2, "step 12 (lost), returned in step 20"
    browser.open(render_page(report_data.make_report(run)), width=400)
    for media in ("screen", "print"):
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media})
        row = browser.find(".by-machine tbody tr").text
        assert "3.20 s step 12 (lost), returned in step 20" in row.replace("\n", " ")
        assert browser.run(
            """
            const box = document.querySelector(".by-machine").parentElement;
            const edge = box.getBoundingClientRect().right;
            return [...box.querySelectorAll("td, th, caption")].every(
              (it) => it.getBoundingClientRect().right <= edge + 0.5);
            """
        )
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize("series", ["measured", "predicted"])
def test_one_long_step_does_not_flatten_the_charts(browser, series):
    """The axis is the same with 0.5 s and 500 s, and the aria-label names the largest value."""
    axis = """
        const canvas = document.querySelector("#charts canvas");
        return [...canvas.getContext("2d").getImageData(0, 20, 60, canvas.height - 50).data].join();
    """
    axes = []
    for seconds in (0.5, 500.0):
        run = report_data.make_run(steps=200)
        run["series"][series]["value"][100] = seconds
        browser.open(render_page(report_data.make_report(run)), fragment="#step=100")
        axes.append(browser.run(axis))
    assert axes[0] == axes[1]
    label = browser.find("#charts .plot").get_attribute("aria-label")
    assert "largest 8.333\u00a0min" in label
    assert "8.333\u00a0min" in browser.text("#charts figure")


@pytest.mark.parametrize("page", [two_runs, many_machines])
def test_the_page_fits_windows_of_any_width(browser, page):
    browser.open(page(), width=360)
    overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    map_width = "return document.querySelector('.map canvas').clientWidth"
    for width in (360, 1920, 360):
        browser.set_width(width)
        browser.until(lambda width=width: 0.7 * width < browser.run(map_width) < width)
        browser.until(lambda: browser.run(overflow) <= 0)


def test_the_page_follows_the_colour_scheme_of_the_system(browser):
    background = "return getComputedStyle(document.body).backgroundColor"
    seen = []
    for dark in (False, True):
        browser.open(one_run(), dark=dark)
        assert (luminance(browser.run(background)) < 0.2) is dark
        seen.append(browser.picture(".map canvas"))
    assert seen[0] != seen[1]
    feature = {"name": "prefers-color-scheme", "value": "light"}
    browser.cdp("Emulation.setEmulatedMedia", features=[feature])
    browser.until(lambda: browser.picture(".map canvas") == seen[0])


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_enough_contrast(browser, dark):
    browser.open(two_runs(), dark=dark)
    browser.press("#assignment", "\ue014")
    assert browser.run(LOW_CONTRASTS) == []


def test_screen_readers_get_names_of_all_elements(browser):
    browser.open(two_runs())
    assert browser.run("return document.documentElement.lang") == "en"
    levels = [
        int(node.tag_name[1]) for node in browser.all("h1, h2, h3, h4") if node.is_displayed()
    ]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = browser.run("return [...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))
    named_roles = {"button", "link", "searchbox", "slider", "spinbutton", "image", "table"}
    found = set()
    for node in browser.cdp("Accessibility.getFullAXTree")["nodes"]:
        role = node["role"]["value"]
        if node["ignored"] or role not in named_roles:
            continue
        found.add(role)
        assert node["name"]["value"].strip(), node
    assert found >= named_roles - {"table"}


def test_the_slider_moves_the_drawing_and_its_tables(browser):
    run = report_data.make_run()
    browser.open(render_page(report_data.make_report(run)))
    browser.press("#assignment", "\ue011")  # Home
    seen = set()
    for key in ("\ue014", "\ue014", "\ue00f", "\ue010", "\ue012"):  # right, right, page, end, left
        before = browser.picture("#drawing")
        browser.press("#assignment", key)
        browser.until(lambda before=before: browser.picture("#drawing") != before)
        seen.add(browser.text("#assignment-text"))
        valuetext = browser.find("#assignment").get_attribute("aria-valuetext")
        assert browser.text("#assignment-text").startswith(valuetext)
    assert len(seen) == 5
    entry = run["assignments"][-2]
    rows = browser.run(ROWS, ".tables table")
    assert [row[3] for row in rows] == [" ".join(map(str, block[2])) for block in entry["blocks"]]
    machines = browser.run(ROWS, ".tables > :last-child table")
    absent = [int(row[0].split()[0]) for row in machines if row[2] == "\u2013"]
    assert absent == [n for n in range(1, 7) if n not in entry["available"]]


def test_keys_on_the_map_select_steps_and_machines(browser):
    browser.open(one_run())
    current_step = lambda: browser.find(".map").get_attribute("aria-valuenow")  # noqa: E731
    map_text = lambda: browser.find(".map").get_attribute("aria-valuetext")  # noqa: E731
    for key, step in (("\ue010", "1999"), ("\ue012", "1998"), ("\ue011", "0"), ("\ue014", "1")):
        browser.press(".map", key)
        browser.until(lambda step=step: current_step() == step)
    assert "machine 1 (node01)" in map_text()
    browser.press(".map", "\ue015")  # down
    browser.until(lambda: "machine 2 (node01)" in map_text())
    assert "of its shard's rows" in browser.text(".readout")


def test_map_and_charts_share_a_range_that_a_reload_keeps(browser):
    browser.open(one_run())
    range_text = lambda: browser.text("#range")  # noqa: E731
    chart, everything = browser.picture("#charts canvas"), range_text()
    browser.click("#zoom-in")
    browser.until(lambda: range_text() != everything)
    browser.until(lambda: browser.picture("#charts canvas") != chart)
    browser.press(".map", "+")
    browser.until(lambda: count_steps(range_text()) == pytest.approx(500, abs=2))
    browser.press(".map", "\ue010")  # End: the window follows
    browser.until(lambda: "1,999" in range_text())
    browser.until(lambda: "step=1999" in browser.driver.current_url)
    old_range = range_text()
    browser.driver.refresh()
    browser.wait_until_ready()
    browser.until(lambda: range_text() == old_range)
    assert browser.find("#step").get_attribute("value") == "1999"
    browser.click("#all")
    browser.until(lambda: range_text() == everything)


def test_dragging_zooms(browser):
    from selenium.webdriver.common.action_chains import ActionChains

    browser.open(one_run())
    target = browser.find("#charts .plot")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", target)
    pointer = ActionChains(browser.driver, duration=0)
    pointer.move_to_element_with_offset(target, -200, 0).click_and_hold().move_by_offset(200, 0)
    pointer.release().perform()
    browser.until(lambda: 600 < count_steps(browser.text("#range")) < 1200)


def test_links_in_tables_select_steps_and_machines(browser):
    run = report_data.make_run()
    browser.open(render_page(report_data.make_report(run)))
    step, _, machine, _ = next(event for event in run["events"] if event[1] == 0)
    browser.click(f"#event-section a[href='#step={step}&machine={machine}']")
    browser.until(lambda: browser.find("#step").get_attribute("value") == str(step))
    assert f"Step {step:,} " in browser.text("#assignment-text")
    assert machine not in next(a["available"] for a in run["assignments"] if a["step"] == step)
    map_text = browser.find(".map").get_attribute("aria-valuetext")
    assert map_text.startswith(f"Step {step:,} ")
    assert f"machine {machine} (" in map_text
    assert map_text.endswith("was lost (its process ended: signal 9)")
    second = str(run["by_machine"]["rows"][1][0])
    browser.click(".by-machine tbody tr:nth-child(2) a")
    browser.until(lambda: browser.find("#machine").get_attribute("value") == second)
    assert browser.text(".by-machine tr.selected th") == second
    browser.until(lambda: f"machine {second} (" in browser.text("#charts"))


def test_events_are_found_by_machine_and_text_and_shown_on_demand(browser):
    run = report_data.make_run(steps=400, losses=0)
    run["events"] = [[step % 400, step % 5, 1 + step % 7, "x"] for step in range(2500)]
    browser.open(render_page(report_data.make_report(run)))
    assert browser.text("#event-count") == "2,500 events, the first 200 shown"
    browser.click("#all-events")
    assert len(browser.run(ROWS, EVENTS)) == 2500
    assert browser.text("#event-count") == "2,500 events"
    for text, found in (
        ("5", [event for event in run["events"] if event[2] == 5]),
        ("was lost", [event for event in run["events"] if event[1] == 0]),
    ):
        browser.find("#event-search").clear()
        browser.press("#event-search", text)
        count = f"{len(found)} of 2,500 events, the first 200 shown"
        browser.until(lambda count=count: browser.text("#event-count") == count)
        rows = [row[0] for row in browser.run(ROWS, EVENTS)]
        assert sorted(map(int, rows)) == sorted(event[0] for event in found)[:200]


def test_a_line_of_a_chart_can_be_hidden(browser):
    browser.open(one_run())
    before = browser.picture("#charts canvas")
    browser.click("#charts button.entry")
    assert browser.find("#charts button.entry").get_attribute("aria-pressed") == "false"
    browser.until(lambda: browser.picture("#charts canvas") != before)


def test_two_runs_share_axes_and_are_compared(browser):
    browser.open(two_runs())
    assert len(browser.all(".map")) == 2
    rows = browser.run(ROWS, "[aria-labelledby=compared] table")
    assert [row[0] for row in rows] == ["A: results/heterogeneous", "B: results/cyclic"]
    assert 1.4 < float(rows[1][5].removesuffix(" \u00d7")) < 1.6
    before = [browser.picture(f".map:nth-of-type({n}) canvas") for n in (1, 2)]
    browser.click("#zoom-in")
    for n in (1, 2):
        browser.until(lambda n=n: browser.picture(f".map:nth-of-type({n}) canvas") != before[n - 1])
    assert browser.text("#assignment-text").startswith("A Step")
    browser.press(".map:nth-of-type(2)", "\ue014")
    browser.until(lambda: browser.text("#assignment-text").startswith("B Step"))


def test_many_steps_are_shown_in_bins(browser):
    browser.open(many_steps())
    assert count_steps(browser.text("#range")) == 10_000
    browser.press(".map", "\ue010", "+", "+")
    browser.until(lambda: count_steps(browser.text("#range")) == 2500)
    browser.until(lambda: "Steps 9,996\u20139,999" in browser.text(".readout"))
    browser.press(".map", "\ue015")  # down: the next machine, also in the chart of speeds
    browser.until(lambda: "machine 2 (node01)" in browser.text(".readout"))
    assert "machine 2 (node01)" in browser.text("#charts")


def test_one_of_many_machines_is_selected_by_its_number(browser):
    browser.open(many_machines())
    browser.press(".map", "\ue010")  # End
    browser.press("#machine", "\ue009a\ue000321\ue007")
    browser.until(lambda: "machine 321 (node161)" in browser.text(".readout"))
    assert "machine 321 (node161)" in browser.text("#charts")


@pytest.mark.parametrize(("speeds", "recovery", "steps"), [((1.0,), 1, 60), ((1, 2), 1, 1)])
def test_pages_of_one_machine_or_one_step_can_be_used(browser, speeds, recovery, steps):
    run = report_data.make_run(speeds=speeds, recovery=recovery, steps=steps, losses=0)
    browser.open(render_page(report_data.make_report(run)))
    assert count_steps(browser.text("#range")) == steps
    browser.press(".map", "\ue014")
    browser.until(lambda: browser.find("#step").get_attribute("value") == "0")


def test_a_run_without_a_step_has_no_figures(browser, make_run):
    browser.open(render_page(page_data([Run(str(make_run([])))], "a run")))
    assert browser.find("#runs").is_displayed()
    assert not browser.find("#time-section").is_displayed()


def test_text_of_records_is_not_parsed_as_html(browser):
    data = report_data.make_report(report_data.make_hostile_run(HOSTILE), title=HOSTILE)
    browser.open(render_page(data))
    assert browser.driver.title == browser.text("h1") == printable(HOSTILE)
    assert browser.all("img") == []
    assert printable(HOSTILE) in browser.text("#runs .status")
    browser.press(".map", "\ue014")
    browser.until(lambda: printable(HOSTILE) in browser.text(".readout"))


def test_the_policy_of_the_page_forbids_network_access(driver, tmp_path):
    page = Page(driver, tmp_path).open(one_run())
    blocked = page.driver.execute_async_script("""
        const done = arguments[arguments.length - 1];
        const seen = [];
        addEventListener("securitypolicyviolation", (event) => {
            seen.push(event.effectiveDirective);
            if (seen.length === 3) done(seen.sort());
        });
        fetch("http://127.0.0.1:9/").catch(() => {});
        document.body.append(Object.assign(new Image(), {src: "http://127.0.0.1:9/x.png"}));
        document.body.append(Object.assign(document.createElement("script"), {text: "boo()"}));
    """)
    assert blocked == ["connect-src", "img-src", "script-src-elem"]
    page.read_console()
    page.read_requests()


def test_printed_pages_are_light(browser):
    browser.open(one_run())
    light = browser.picture(".map canvas")
    browser.open(one_run(), dark=True)
    dark = browser.picture(".map canvas")
    printed = base64.b64decode(browser.cdp("Page.printToPDF", printBackground=True)["data"])
    assert printed.startswith(b"%PDF")
    ink = "return getComputedStyle(document.querySelector('h1')).color"
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert luminance(browser.run(ink)) < 0.2
    assert browser.picture(".map canvas") == light
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert luminance(browser.run(ink)) > 0.5
    assert browser.picture(".map canvas") == dark


def test_the_page_of_a_running_run_reloads(browser):
    run = report_data.make_run(steps=60, state="running")
    browser.open(render_page(report_data.make_report(run, reload_seconds=2)), fragment="#step=30")
    browser.run("""
        scrollTo(0, 300);
        window.before = true;
        sessionStorage.setItem(`${location.pathname} reload`, "false"); // this once, then no more
    """)
    browser.until(lambda: browser.run("return window.before === undefined"))
    browser.wait_until_ready()
    assert browser.find("#step").get_attribute("value") == "30"
    # Elements above may have another height at first.
    browser.until(lambda: abs(browser.run("return scrollY") - 300) < 50)
    assert not browser.find("#reload").is_selected()
    browser.run("sessionStorage.clear()")


def test_the_figures_are_hidden_if_the_data_are_broken(driver, tmp_path):
    broken = re.sub(r'(id="data">).*?(</script>)', r"\1{nonsense\2", one_run(), flags=re.S)
    page = Page(driver, tmp_path)
    (tmp_path / "report.html").write_text(broken, encoding="utf-8")
    driver.get((tmp_path / "report.html").as_uri())
    page.until(lambda: "cannot unpack its data" in page.text("#loading"))
    assert page.find("#loading").is_displayed()
    assert page.find("#runs table").is_displayed()
    assert not page.find("#time-heading").is_displayed()
    page.read_console()
    page.read_requests()


def test_the_line_of_a_machine_has_a_gap_while_it_is_absent(browser):
    """Its colour is on both sides of the gap, but not in it."""
    run = report_data.make_run(speeds=(2, 2), recovery=1, steps=100, losses=0)
    for speeds in run["speeds"]["by_machine"]:
        third = len(speeds) // 3
        speeds[third:-third] = [None] * (len(speeds) - 2 * third)
    browser.open(render_page(report_data.make_report(run)))
    is_drawn = browser.run("""
        const figures = [...document.querySelectorAll("figure")];
        const canvas = figures.find((it) => /^Speeds/.test(it.textContent)).querySelector("canvas");
        const { width, height } = canvas;
        const { data } = canvas.getContext("2d").getImageData(0, 0, width, height - 30);
        const isColoured = (k) => Math.abs(data[k] - data[k + 2]) > 60 && data[k + 3] > 100;
        return [0.12, 0.5, 0.8].map((part) => {
            const x = Math.round(64 + part * (width - 88));
            const column = Array.from({ length: height - 30 }, (_, y) => 4 * (y * width + x));
            return column.some(isColoured);
        });
    """)
    assert is_drawn == [True, False, True]


def count_steps(text):
    """Return the number of steps in the text above the map."""
    first, last = re.findall(r"[\d,]+", text)[:2]
    return int(last.replace(",", "")) - int(first.replace(",", "")) + 1


def luminance(colour):
    """Return the approximate luminance of a CSS colour, from 0 to 1."""
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / (3 * 255)


EVENTS = "#event-section table"
ROWS = """
    return [...document.querySelector(arguments[0]).tBodies[0].rows].map(
        (row) => [...row.cells].map((cell) => cell.textContent.trim()));
"""

# Texts with too little contrast to their background, by the formula of WCAG.
LOW_CONTRASTS = """
    const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const luminance = ([r, g, b]) => [r, g, b].map((x) => x / 255)
        .map((x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4))
        .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
    const background = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = parts(getComputedStyle(at).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const low = [];
    for (const element of document.querySelectorAll("body *")) {
        const hasText = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
        const isExcluded = element.matches("script, noscript, :disabled");
        if (!hasText || isExcluded || !element.checkVisibility()) continue;
        const colour = parts(getComputedStyle(element).color);
        const [a, b] = [luminance(colour), luminance(background(element))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) low.push([element.textContent.slice(0, 40), element.className, ratio]);
    }
    return low;
"""
