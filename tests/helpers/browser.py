"""A headless browser, and the requests and console messages of its pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from helpers.needs import CHROMEDRIVER, CHROMIUM
from helpers.waiting import LIMIT


@contextmanager
def start_driver() -> Iterator[Any]:
    """Start a browser; yield its Selenium driver."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(CHROMEDRIVER))
    driver.set_page_load_timeout(LIMIT)
    driver.set_script_timeout(LIMIT)
    try:
        yield driver
    finally:
        driver.quit()


class Browser:
    """A browser that opens pages."""

    def __init__(self, driver: Any) -> None:
        from selenium.common.exceptions import JavascriptException
        from selenium.webdriver.support.ui import WebDriverWait

        self.driver = driver
        ignored = [JavascriptException]  # raised while a page is unloaded
        self._wait = WebDriverWait(driver, LIMIT, poll_frequency=0.02, ignored_exceptions=ignored)

    def load(self, address: str, *, width: int = 1200, dark: bool = False) -> None:
        """Start to load a page."""
        self.set_width(width)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[feature])
        self.driver.get(address)

    def set_width(self, width: int) -> None:
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.cdp("Emulation.setDeviceMetricsOverride", **metrics)

    def cdp(self, command: str, **options: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, options)

    def run(self, script: str, *args: Any) -> Any:
        return self.driver.execute_script(script, *args)

    def until(self, condition: Callable[[], Any]) -> Any:
        return self._wait.until(lambda _: condition())

    def read_console(self, *ignored_levels: str) -> list[str]:
        """Return the console messages since the last call."""
        entries = self.driver.get_log("browser")
        return [entry["message"] for entry in entries if entry["level"] not in ignored_levels]

    def read_requests(self) -> set[str]:
        """Return the URLs that were requested since the last call."""
        entries = self.driver.get_log("performance")
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        return {
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        }
