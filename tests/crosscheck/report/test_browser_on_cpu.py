# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser, without network: no error, the verdict on the first screen, drawings that are seen.

Wants chromium and chromedriver (Debian: `apt-get install chromium chromium-driver`). Without them the tests are
skipped, unless CROSSCHECK_NEED_BROWSER=1 says that this must not be.
"""

import os
import shutil
from dataclasses import replace

import pytest

from verl.crosscheck.diagnosis.findings import Phase
from verl.crosscheck.report.page import render
from verl.crosscheck.report.texts import texts_of

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
SIZES = {"desk": (1280, 800), "phone": (390, 844)}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not (BROWSER and DRIVER):
        lacking = " and ".join(name for name, path in (("chromium", BROWSER), ("chromedriver", DRIVER)) if not path)
        reason = f"{lacking} not found; on Debian: apt-get install chromium chromium-driver"
        if os.environ.get("CROSSCHECK_NEED_BROWSER") == "1":
            pytest.fail(f"{reason}. CROSSCHECK_NEED_BROWSER=1 asks for it")
        pytest.skip(reason)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture
def resized(browser):
    def resized(size):
        width, height = SIZES[size]
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)

    return resized


@pytest.fixture
def opened(browser, resized, tmp_path):
    def opened(report, language="en", size="desk", scheme="light"):
        resized(size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        file = tmp_path / f"{language}-{size}.html"
        file.write_text(render(report, texts_of(language)), encoding="utf-8")
        browser.get_log("browser")
        browser.get(file.as_uri())
        return browser

    return opened


@pytest.fixture(scope="module")
def lean_report(make_report):
    return make_report(count=4, lean=True)


def box(browser, selector):
    """Left, top, right and bottom of the first element, in pixels of the window."""
    found = browser.execute_script(
        "const r = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return [r.left, r.top, r.right, r.bottom]",
        selector,
    )
    return [round(each) for each in found]


def on_screen(browser, selector, size):
    left, top, right, bottom = box(browser, selector)
    width, height = SIZES[size]
    return 0 <= left < right <= width and 0 <= top < bottom <= height


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("phase", Phase)
def test_the_verdict_is_on_the_first_screen(opened, make_report, phase, size):
    language = "zh" if size == "phone" else "en"
    browser = opened(make_report(phase, count=4, lean=True), language, size)
    assert browser.get_log("browser") == []
    for selector in ("#verdict", "h1", ".sentence", ".sure", ".phases"):
        assert on_screen(browser, selector, size), selector
    shown = browser.execute_script("return document.querySelector('h1').innerText")
    assert texts_of(language).phases[phase].name in shown


def test_drawings_are_seen_and_nothing_is_wider_than_the_screen(opened, resized, rollout_report):
    browser = opened(rollout_report)
    for size in SIZES:
        resized(size)
        assert_drawings_are_seen(browser, size)


def assert_drawings_are_seen(browser, size):
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('figure.plot > svg')].map(each => each.getBoundingClientRect())"
        ".filter(each => each.width).map(each => [each.width, each.height])"
    )
    assert len(boxes) >= 6
    assert all(width > 250 and height > 100 for width, height in boxes)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= SIZES[size][0]
    text = browser.execute_script("return document.querySelector('figure.plot svg text').getBBox().width")
    assert text > 3
    colours = browser.execute_script(
        "return [...document.querySelectorAll('.distances-part .bad svg path')]"
        ".map(each => getComputedStyle(each).stroke)"
    )
    assert "rgb(194, 47, 47)" in colours  # --differ


def test_evidence_stands_beside_its_limit(opened, lean_report):
    browser = opened(lean_report)
    first = ".numbers tbody tr:first-child td"
    cells = [cell.text for cell in browser.find_elements("css selector", first)]
    assert cells[0] in "345678"
    assert float(cells[2].split()[0]) > 0.01
    assert cells[3] == "at most 0.01"


def test_nothing_was_asked_of_the_network(opened, lean_report):
    browser = opened(lean_report)
    names = browser.execute_script("return performance.getEntriesByType('resource').map(each => each.name)")
    assert [name for name in names if not name.startswith("data:")] == []


def test_a_button_copies_its_command(opened, lean_report):
    browser = opened(lean_report)
    button = browser.find_element("css selector", "button.copy")
    button.click()
    assert button.text == "Copied"
    selected = browser.execute_script("return window.getSelection().toString()")
    assert selected.startswith("actor_rollout_ref.rollout.enforce_eager=True")


def test_dark_and_light_differ_and_both_can_be_read(opened, lean_report):
    def colours(browser):
        return browser.execute_script(
            "return ['h1', 'body', 'figure.plot svg text', '.plot strong'].map(each => {"
            "const style = getComputedStyle(document.querySelector(each));"
            "return [style.color, style.fill, getComputedStyle(document.querySelector('section')).backgroundColor]})"
        )

    light, dark = (colours(opened(lean_report, scheme=scheme)) for scheme in ("light", "dark"))
    for one, other in zip(light, dark, strict=True):
        assert one[2] != other[2]
    (ink, _, ground), *_ = dark
    assert brightness(ink) - brightness(ground) > 120
    (ink, _, ground), *_ = light
    assert brightness(ground) - brightness(ink) > 120


def brightness(colour):
    return sum(int(each) for each in colour[4:-1].split(",")[:3]) / 3


def test_a_hostile_page_runs_nothing(opened, lean_report):
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    row = lean_report.rows[0]
    rows = (replace(row, prompt=evil, tokens=tuple(replace(each, text=evil) for each in row.tokens)),)
    browser = opened(replace(lean_report, rows=rows))
    assert browser.get_log("browser") == []
    assert "owned" not in browser.title
