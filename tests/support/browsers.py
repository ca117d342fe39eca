"""Where a browser is found, and how it is started."""

from __future__ import annotations

import shutil
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


def content_after(browser: Any, address: str, ready: str) -> str:
    """Open a page offline, wait for an element, and return the HTML; nothing may be logged, errors included."""
    context = browser.new_context(viewport={"width": 1300, "height": 900}, offline=True)
    tab, logged = context.new_page(), []
    tab.on("console", lambda message: logged.append(message.text))
    tab.on("pageerror", lambda error: logged.append(str(error)))
    tab.goto(address)
    tab.wait_for_selector(ready, state="attached")
    content = str(tab.content())
    context.close()
    assert logged == []
    return content
