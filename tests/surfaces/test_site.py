"""The documentation site: built strictly and offline, no request leaves it, search works from the file system."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytestmark = [pytest.mark.surfaces, pytest.mark.xdist_group("site")]  # one process builds it

ROOT = Path(__file__).resolve().parents[2]
GENERATE = ROOT / "docs" / "generate"
AT_THE_ROOT = ("README.md", "CONTRIBUTING.md", "NOTATION.md", "CHANGELOG.md")
LOADS = dict.fromkeys(("script", "img", "iframe", "source", "video", "audio"), "src") | {"link": "href"}
COPIED = """() => [...document.querySelectorAll("pre:has(.gp) > code")].map(code => {
    code.setAttribute("data-md-copying", "");  // as the copy button does
    return code.innerText;
}).join("\\n")"""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(autouse=True)
def _generators(monkeypatch):
    """The modules of docs/generate, as mkdocs sees them."""
    monkeypatch.syspath_prepend(str(GENERATE))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert "mkdocs build --strict\n" in (ROOT / "Makefile").read_text(), "--quiet would count no warnings"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "http_proxy": "http://127.0.0.1:9"}  # nobody answers there
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class Loaded(HTMLParser):
    """What a page loads from elsewhere by itself; links to be clicked are not loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "link" and given.get("rel") in ("canonical", "prev", "next"):
            return
        address = given.get(LOADS.get(tag, ""), "") or ""
        if re.match(r"(https?:)?//", address):
            self.addresses.append(address)


def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        text = page.read_text(encoding="utf-8")
        parser = Loaded()
        parser.feed(text)
        assert parser.addresses == [], page
        assert not re.search(r"@import|url\(\s*['\"]?https?:", text), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"@import\s|url\(\s*['\"]?https?:", sheet.read_text(encoding="utf-8")), sheet


def test_every_law_command_and_notebook_has_its_page(site):
    from recallscope.cli.main import COMMANDS
    from recallscope.theory.law import LAWS

    assert [law.name for law in LAWS if not (site / "laws" / f"{law.name}.html").exists()] == []
    commands = (site / "commands.html").read_text(encoding="utf-8")
    assert [command for command in COMMANDS if f'id="{command}"' not in commands] == []
    notebooks = sorted(path.stem for path in (ROOT / "docs" / "notebooks").glob("*.py"))
    assert len(notebooks) == 6
    assert [name for name in notebooks if not (site / "notebooks" / f"{name}.html").exists()] == []
    assert max(path.stat().st_size for path in site.rglob("pictures/*")) < 300_000
    names = (site / "api" / "recallscope.html").read_text(encoding="utf-8")
    assert 'id="recallscope.interp.memory.HashMemory"' in names


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_search_works_from_the_file_system_and_nothing_is_requested(site):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.click("input[name=query]")
        page.locator("input[name=query]").press_sequentially("selectivity", delay=50)  # the page listens to keys
        page.wait_for_selector(".md-search-result__item", timeout=60_000)
        assert "electivity" in page.inner_text(".md-search-result__list")
        page.goto((site / "quickstart.html").as_uri())
        copied = page.evaluate(COPIED)
        assert "recallscope predict" in copied
        assert not re.search(r"^\$|p_recall", copied, re.MULTILINE)
        for name in ("laws/trained-sharing.html", "notebooks/3_hash_memory.html", "api/recallscope.html"):
            page.goto((site / name).as_uri())
        browser.close()
    assert [address for address in asked if not address.startswith(("file:", "data:", "about:", "blob:"))] == []


def test_laws_in_the_table_lead_to_their_pages():
    from law_pages import with_links

    from recallscope.theory.law import LAWS

    page = with_links((ROOT / "docs" / "LAWS.md").read_text(encoding="utf-8"))
    assert all(f"| [`{law.name}`](laws/{law.name}.md)" in page for law in LAWS)


def test_a_public_name_without_a_docstring_is_found():
    from api_pages import undocumented

    class Silent:
        def method(self):
            pass

    assert list(undocumented("Silent", Silent)) == ["Silent", "Silent.method"]
    assert list(undocumented("site", Loaded)) == ["site.handle_starttag"]


def test_docstrings_become_paragraphs():
    from docstrings import in_markdown

    text = "Says it.\n\nPaper: Thm 1\n    (`a`).   Holds for: all.\nDeparts: no."
    assert in_markdown(text) == "Says it.\n\n**Paper:** Thm 1\n(`a`).\n\n**Holds for:** all.\n\n**Departs:** no."
    assert in_markdown("Paper thin.") == "Paper thin."


def test_a_folder_in_the_navigation_has_all_its_pages():
    from navigation import expanded, moved, named

    nav = [{"A": "index.md"}, {"How": ["howto/b.md", "howto/"]}]
    pages = ["howto/a.md", "howto/b.md", "howto/deep/c.md", "index.md"]
    assert expanded(nav, pages, set(named(nav))) == [{"A": "index.md"}, {"How": ["howto/b.md", "howto/a.md"]}]
    assert (
        moved("[a](docs/X.md) [b](NOTATION.md) [c](https://docs/x)") == "[a](X.md) [b](NOTATION.md) [c](https://docs/x)"
    )


@pytest.mark.parametrize("name", AT_THE_ROOT)
def test_links_of_the_root_pages_lead_somewhere(name):
    """Those of docs/ are checked when the site is built."""
    for link in re.findall(r"\]\((?!https?:|#)([^)\s#]+)", (ROOT / name).read_text(encoding="utf-8")):
        assert (ROOT / link).exists(), link
