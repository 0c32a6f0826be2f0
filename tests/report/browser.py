"""A page as headless Chromium shows it: what it writes to the console, and where its figures are at a given width."""

import json
import re
import subprocess
from pathlib import Path

PROBE = """<!doctype html><meta charset="utf-8"><body style="margin:0">
<iframe id="page" src="PAGE" style="width:WIDTHpx;height:4000px;border:0"></iframe><pre id="found"></pre>
<script>
document.getElementById("page").onload = (event) => {
  const page = event.target.contentDocument, found = {figures: {}, hidden: []};
  const look = () => {
    for (const figure of page.querySelectorAll("figure")) {
      const box = figure.querySelector("svg").getBoundingClientRect();
      if (box.width === 0) continue;
      const texts = [...figure.querySelectorAll("svg text")].map((text) => text.getBoundingClientRect());
      found.figures[figure.id] = {left: box.left, right: box.right, height: box.height,
        letter: Math.min(...texts.map((text) => Math.min(text.height, text.width * 9))), texts: texts.length};
    }
  };
  look();
  for (const choice of page.querySelectorAll("input[type=radio]")) { choice.click(); look(); }
  found.hidden = [...page.querySelectorAll("figure")].map((f) => f.id).filter((id) => !(id in found.figures));
  found.width = page.documentElement.scrollWidth;
  found.paragraph = parseFloat(getComputedStyle(page.querySelector("p")).fontSize);
  document.getElementById("found").textContent = JSON.stringify(found);
};
</script>"""
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--allow-file-access-from-files",
    "--enable-logging=stderr",
    "--virtual-time-budget=20000",
)


def look(chromium: str, page: Path, scratch: Path, *, width: int) -> tuple[dict, list[str]]:
    """What the probe found in a page of some width in pixels, and the lines that its console got."""
    probe = scratch / "probe.html"
    probe.write_text(PROBE.replace("PAGE", page.resolve().as_uri()).replace("WIDTH", str(width)), encoding="utf-8")
    command = [chromium, *FLAGS, f"--user-data-dir={scratch / 'profile'}", "--dump-dom", probe.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert found, f"the probe did not run: {done.stdout[-500:]} {console}"
    return json.loads(found[1]), console
