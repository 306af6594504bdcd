from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlencode

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from stillme.core.types import Interval
from stillme.estimates.numbers import title
from stillme.report import ReportData, write
from stillme.report.embedding import rows_of
from stillme.runs.store.summaries import Spoken
from tests.pages import wait_until
from tests.report.planted import again, planted

pytestmark = pytest.mark.browser

Visit = Callable[..., Page]

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\"'&"


@pytest.fixture(scope="module")
def address(make_data: Callable[..., ReportData], tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = write(tmp_path_factory.mktemp("report"), make_data(planted=True))
    return path.as_uri()


@pytest.fixture(scope="module")
def paper_address(paper: ReportData, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("paper"), paper).as_uri()


@pytest.fixture(scope="module")
def planted_address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Five editors; one group is left unedited in most edits, another is lightened."""
    editors = tuple(f"editor-with-a-long-name-{number}" for number in range(5))
    data = planted(unedited={"E": 0.7}, lightened={"A": 1.0}, editors=editors)
    return write(tmp_path_factory.mktemp("planted"), data).as_uri()


@pytest.fixture
def read(visit: Visit) -> Visit:
    """Open a report and wait for its script."""

    def opened(address: str, **options: object) -> Page:
        page = visit(address, **options)
        page.wait_for_selector("html[data-ready]")
        return page

    return opened


def rows_shown(page: Page) -> list[str]:
    return page.locator("#explorer tbody tr").all_inner_texts()


def test_the_page_opens_without_a_request_or_a_complaint(read: Visit, address: str) -> None:
    page = read(address)
    assert page.locator("html").get_attribute("data-ready") == "yes"
    assert page.locator("h1").inner_text() == "Two editors"
    wait_until(page, "[...document.images].every((image) => image.complete && image.naturalWidth > 0)")


def test_every_number_of_a_group_or_gap_leads_to_rows_that_give_it_again(
    read: Visit, paper_address: str, paper: ReportData
):
    page = read(paper_address)
    checked = [
        (estimate, estimate.outcome)
        for estimate in paper.estimates
        if estimate.scope in ("all", "group") and isinstance(estimate.outcome, Interval) and estimate.judge != "gpt"
    ][::60]
    assert len(checked) > 15
    for estimate, interval in checked:
        name = title(estimate.quantity)
        page.evaluate("address => { location.hash = address }", rows_of(estimate))
        wait_until(
            page,
            "title => document.querySelector('.counted')?.textContent.startsWith(title)",
            arg=f"{name}, {estimate.judge}" if estimate.judge else name,
        )
        text = page.locator("#counted").inner_text()
        value = float(text.split()[0].replace("−", "-").replace("+", ""))
        edits = re.search(r"of ([\d,]+)\)", text)
        assert edits
        scale = 100 if "%" in text else 1
        assert value == pytest.approx(scale * interval.value, abs=0.06 if scale == 100 else 0.006)
        assert int(edits[1].replace(",", "")) == estimate.edits
    asked = {"view": "table", "quantity": "skin_lightened", "judge": "ensemble (mean)", "editor": "flux", "by": "race"}
    page.evaluate("address => { location.hash = address }", f"#edits?{urlencode(asked)}")
    page.wait_for_selector(".by-group")
    assert page.locator(".by-group th").all_inner_texts()[:2] == ["Black", "East Asian"]
    assert page.locator(".by-group tr").count() == 7, "a gap's groups, side by side"


def test_following_a_number_by_keyboard_shows_its_rows(read: Visit, planted_address: str) -> None:
    page = read(planted_address)
    link = page.locator(".worst .headline a[href*='skin_lightened']").first
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#explorer table")
    assert page.locator("#counted").inner_text().startswith(link.inner_text().split(" (")[0])
    assert page.evaluate("document.activeElement.id") == "how-many"
    assert "Counts" in page.locator("#explorer thead").inner_text()
    assert page.evaluate("document.getElementById('summary').getBoundingClientRect().top") < 200
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#explorer') !== null")


def test_filters_bounds_and_flags_narrow_the_edits_and_stand_in_the_address(read: Visit, paper_address: str) -> None:
    page = read(paper_address)
    everything = page.locator("#how-many").inner_text()
    page.locator("#filters").get_by_label("Editor").select_option("qwen")
    page.locator("#filters").get_by_label("Race").select_option("Indian")
    page.locator("#filters").get_by_label("Show as").select_option("table")
    assert page.locator("#how-many").inner_text() != everything
    rows = rows_shown(page)
    assert rows
    assert all("qwen" in row and "Indian" in row for row in rows)
    assert "label.race=Indian" in page.url
    page.locator("#filters").get_by_label("Score").select_option(label="Skin lightened · ensemble (mean)")
    page.locator("#filters").get_by_label("Which").select_option("counts")
    assert all("yes" in row for row in rows_shown(page))
    page.get_by_role("button", name="Clear").click()
    assert page.locator("#how-many").inner_text() == everything
    form = page.locator("#filters")
    form.get_by_label("Show as").select_option("table")
    form.get_by_label("Score").select_option(label="Skin Tone Change · ensemble (mean)")
    form.get_by_label("From").fill("4.5")
    form.get_by_label("From").press("Enter")
    wait_until(page, "location.hash.includes('from=4.5')")
    answers = page.locator("#explorer tbody tr td:nth-child(2)").all_inner_texts()
    assert answers
    assert all(text.startswith(("5 ", "4.5")) for text in answers)
    page.get_by_role("button", name="Clear").click()
    form.get_by_label("Flag").select_option("disagree")
    disagreeing = int(page.locator("#how-many").inner_text().split()[0].replace(",", ""))
    assert 0 < disagreeing < 1500


def test_the_worst_come_first_and_one_instruction_is_shown_for_every_group(read: Visit, paper_address: str) -> None:
    page = read(paper_address)
    assert page.locator(".gallery li").count() == 24
    # A source and one picture for each of the two arms.
    assert page.locator(".gallery li").first.locator("img").count() == 3
    page.locator("#explorer").get_by_role("button", name="Show 24 more").click()
    assert page.locator(".gallery li").count() == 48
    assert page.evaluate("document.activeElement.closest('li') !== null")
    grid = page.locator("#grid")
    assert grid.locator("thead th").count() == 8
    assert grid.locator("tbody tr").count() == 4
    page.locator("#grid-choice select").select_option(label="step1x · feature")
    grid.locator("button").first.click()
    assert "step1x" in page.locator("dialog").inner_text()


def test_an_edit_opens_large_and_steps_by_arrow_keys(read: Visit, paper_address: str) -> None:
    page = read(paper_address)
    page.locator(".gallery button.pair").first.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("dialog")
    assert dialog.is_visible()
    first = dialog.inner_text()
    assert "Key" in first
    assert dialog.locator("figure").count() == 4, "source and edit, under each of two arms"
    page.keyboard.press("ArrowRight")
    assert dialog.inner_text() != first
    page.keyboard.press("ArrowLeft")
    assert dialog.inner_text() == first
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert page.evaluate("document.activeElement.classList.contains('pair')")


def test_a_slider_lays_the_edit_upon_its_source(read: Visit, address: str) -> None:
    page = read(address)
    page.locator(".gallery button.pair").first.click()
    range_, after = page.locator("dialog input[type=range]"), page.locator("dialog .after")
    box = page.locator("dialog .compare").bounding_box()
    assert box is not None
    assert page.locator("dialog .before img").bounding_box() == after.locator("img").bounding_box()
    assert "50%" in after.evaluate("element => getComputedStyle(element).clipPath")
    range_.focus()
    title = page.locator("#look-title").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator("#look-title").inner_text() == title, "arrows move the edge, not the gallery"
    assert "51%" in after.evaluate("element => getComputedStyle(element).clipPath")
    page.mouse.click(box["x"] + box["width"] / 4, box["y"] + 20)
    assert range_.input_value() == "25"


def test_on_a_phone_sections_are_folded_until_they_are_asked_for(read: Visit, paper_address: str) -> None:
    page = read(paper_address, viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollHeight") < 9_000
    page.locator("nav a[href='#instructions']").click()
    shown = page.evaluate(
        """() => {
          const box = document.querySelector("#instructions .sideways").getBoundingClientRect();
          const cells = [...document.querySelector("#instructions .heat tbody tr").cells].slice(1);
          return cells.filter((cell) => cell.getBoundingClientRect().right <= box.right).length;
        }"""
    )
    assert shown >= 4, "the heat map opens on its cells"
    fold = page.locator("#numbers .folding")
    assert fold.get_attribute("aria-expanded") == "false"
    assert not page.locator("#estimates").is_visible()
    fold.click()
    assert page.locator("#estimates").is_visible()
    fold.click()
    assert not page.locator("#estimates").is_visible()
    page.locator("nav a[href='#limits']").click()
    expect(page.locator("#limits dl")).to_be_visible()
    page.locator(".answers a.big, .answers .headline a").first.click()
    expect(page.locator("#how-many")).to_be_visible()
    page.emulate_media(media="print")
    assert page.locator("#estimates").is_visible(), "paper has everything"


def test_all_estimates_can_be_sorted_by_keyboard_and_filtered_by_words(
    read: Visit, address: str, make_data: Callable[..., ReportData]
) -> None:
    page = read(address)
    everything = len(make_data(planted=True).estimates)
    while page.locator("#more-numbers button").count():
        page.locator("#more-numbers button").click()
    assert page.locator("#estimates tbody tr").count() == everything
    button = page.locator("#estimates").get_by_role("button", name="Estimate")
    button.focus()
    page.keyboard.press("Enter")
    head = page.locator("#estimates th", has=page.get_by_role("button", name="Estimate"))
    assert head.get_attribute("aria-sort") == "ascending"
    texts = page.locator("#estimates tbody td:nth-child(6)").all_inner_texts()
    values = [float(text.split()[0].replace("−", "-")) / (100 if "%" in text else 1) for text in texts if "(" in text]
    # Texts are rounded, each to its own unit.
    assert all(one <= other + 0.006 for one, other in pairwise(values))
    assert values[0] < values[-1]
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    page.get_by_label("Show only rows with").fill("harsh skin lightened contrast")
    rows = page.locator("#estimates tbody tr").all_inner_texts()
    assert rows
    assert all("harsh" in row and "Skin lightened" in row and "contrast" in row for row in rows)
    assert page.locator("#count").inner_text().startswith(f"{len(rows)} of ")


@pytest.mark.parametrize("width", [390, 1440])
def test_numbers_stay_inside_their_cards(read: Visit, planted_address: str, paper_address: str, width: int):
    for address in (planted_address, paper_address):
        page = read(address, viewport={"width": width, "height": 900})
        outside = page.evaluate(
            """() => [...document.querySelectorAll(".answers .card *")].filter((element) => {
              const card = element.closest(".card").getBoundingClientRect();
              const box = element.getBoundingClientRect();
              const cut = box.right > card.right + 1 || box.left < card.left - 1;
              return box.width && cut && !element.closest(".sideways");
            }).map((element) => element.outerHTML.slice(0, 80))"""
        )
        assert outside == []
        # On a desk, nothing has to be scrolled to be read.
        hidden = page.evaluate(
            "[...document.querySelectorAll('.answers .sideways')]"
            ".filter((element) => element.scrollWidth > element.clientWidth + 1).length"
        )
        assert width < 1440 or hidden == 0


def test_figures_and_whole_tables_are_printed_and_no_controls(read: Visit, paper_address: str) -> None:
    # A4 with margins of a centimetre, at 96 dots an inch.
    page = read(paper_address, viewport={"width": 718, "height": 1000})
    page.emulate_media(media="print")
    cut = page.evaluate(
        """() => ["#numbers .scroll", "#numbers table"].map((name) => document.querySelector(name))
          .map((element) => [getComputedStyle(element).overflowX, element.getBoundingClientRect().right])"""
    )
    assert cut[0][0] == "visible"
    assert all(right <= 718 for _, right in cut)
    rows = page.locator("#estimates tbody tr")
    assert rows.nth(rows.count() - 1).is_visible()
    assert page.locator(".forest").first.is_visible()
    assert not page.locator("#filters").is_visible()
    assert not page.locator("nav").is_visible()
    assert page.pdf().startswith(b"%PDF")


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(read: Visit, paper_address: str, width: int) -> None:
    page = read(paper_address, viewport={"width": width, "height": 800})
    page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.evaluate("location.hash = '#edits?view=table'")
    page.wait_for_selector("#explorer table")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_axe_finds_nothing_to_object_to(read: Visit, paper_address: str) -> None:
    page = read(paper_address)

    def look(context: str | None = None, **options: object) -> None:
        results = Axe().run(page, context=context, options=options)
        assert results.violations_count == 0, results.generate_report()[:3000]

    # Of rows and drawings that are alike, so many are looked at.
    for inside, alike, most in (("tbody", "tr", 8), ("section", "svg", 12)):
        page.evaluate(
            "([inside, alike, most]) => document.querySelectorAll(inside).forEach((part) =>"
            " [...part.querySelectorAll(alike)].slice(most).forEach((one) => one.remove()))",
            [inside, alike, most],
        )
    look()
    page.emulate_media(color_scheme="dark")
    look("#answers", runOnly=["color-contrast"])
    page.emulate_media(color_scheme="light")
    page.evaluate("location.hash = '#edits?view=table&quantity=skin_tone&judge=gpt&by=race'")
    page.wait_for_selector("#explorer table")
    look("#edits")
    page.locator("#explorer .look").first.click()
    look("dialog")


def test_no_string_of_a_user_runs_or_becomes_markup(
    read: Visit, make_data: Callable[..., ReportData], tmp_path: Path
) -> None:
    names = {"group_names": (HOSTILE, "B", "C"), "prompt_text": HOSTILE, "origin": HOSTILE}
    data = make_data(title=HOSTILE, planted=True, **names)
    edits = replace(data.edits, editors=(HOSTILE, "harsh"))
    data = again(data, edits=edits, scores=tuple(replace(score, judge=HOSTILE) for score in data.scores))
    remark = Spoken(edit="", judge="watcher", axis="skin_tone", text=HOSTILE)
    data = replace(data, remarks=lambda keys: {key: [remark] for key in keys}, badges=(HOSTILE,))
    page = read(write(tmp_path, data).as_uri())
    page.locator(".gallery button.pair").first.click()
    assert HOSTILE in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    page.locator("#filters").get_by_label("Race").select_option(HOSTILE)
    page.locator("#filters").get_by_label("Show as").select_option("table")
    assert rows_shown(page)
    assert page.title().startswith(HOSTILE)
    assert page.locator("img[src=x]").count() == 0
    assert page.locator("[onerror], [onload]").count() == 0
    assert page.locator("script").count() == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(read: Visit, address: str, scheme: str) -> None:
    page = read(address, color_scheme=scheme)
    contrast = page.evaluate(
        """() => {
          const canvas = document.createElement("canvas").getContext("2d");
          const luminance = (colour) => {
            canvas.fillStyle = colour;  // and read back, it is #rrggbb
            const parts = [1, 3, 5].map((at) => parseInt(canvas.fillStyle.slice(at, at + 2), 16) / 255);
            const [r, g, b] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const light = (name) => luminance(getComputedStyle(document.documentElement).getPropertyValue(name));
          const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          const inks = ["--ink", "--soft", "--alert", ...[0, 1, 2, 3, 4, 5].map((n) => `--ink-${n}`)];
          const texts = inks.flatMap((ink) => ["--paper", "--card"].map((on) => ratio(light(ink), light(on))));
          const shades = [...Array(9).keys()].flatMap((n) => ["up", "down"].map((side) => {
            const square = document.createElement("td");
            square.className = `${side}-${n + 1}`;
            const table = document.createElement("table");
            table.className = "heat";
            table.append(document.createElement("tbody"));
            table.tBodies[0].append(document.createElement("tr"));
            table.rows[0].append(square);
            document.body.append(table);
            const { color, backgroundColor } = getComputedStyle(square);
            return ratio(luminance(color), luminance(backgroundColor));
          }));
          return [...texts, ...shades];
        }"""
    )
    assert min(contrast) >= 4.5


def test_without_script_the_numbers_are_still_there(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("#estimates tbody tr").count() > 50
    assert page.get_by_role("heading", name="For whom is it worst?").is_visible()
    assert page.locator(".forest").count() > 4
    context.close()


def test_full_pictures_open_from_the_run_folder_beside(
    read: Visit, make_data: Callable[..., ReportData], pictures: Path, tmp_path: Path
) -> None:
    beside = tmp_path / "images"
    beside.mkdir()
    for file in pictures.iterdir():
        (beside / file.name).write_bytes(file.read_bytes())
    data = replace(make_data(), image_path=lambda sha256: beside / f"{sha256}.png", folder=tmp_path)
    page = read(write(tmp_path, data).as_uri())
    page.locator(".gallery button.pair").first.click()
    edit = page.locator("dialog figure img").nth(1)
    assert (edit.get_attribute("src") or "").startswith("images/")
    wait_until(page, "document.querySelectorAll('dialog img')[1].naturalWidth === 96")


@pytest.mark.parametrize("redact", ["blur", "omit"])
def test_a_redacted_page_neither_holds_nor_leads_to_a_portrait(
    read: Visit, make_data: Callable[..., ReportData], pictures: Path, tmp_path: Path, redact: str
) -> None:
    data = replace(make_data(), redact=redact, folder=pictures)
    path = write(tmp_path, data)
    assert ".png" not in path.read_text()
    page = read(path.as_uri())
    widest = page.evaluate(
        "Math.max(0, ...[...document.images].map((image) => image.naturalWidth).filter((w) => w < 900))"
    )
    assert widest == (10 if redact == "blur" else 0)
    assert page.get_by_text("portraits blurred" if redact == "blur" else "portraits omitted").is_visible()
