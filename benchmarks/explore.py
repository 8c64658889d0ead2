"""The explorer: how soon it paints and follows a slider, and many clients at once without an error or growing memory.

    python benchmarks/explore.py --seconds 60 --clients 50

Prints one JSON object; exits with 1 if a request failed or the server grew. The first paint should come within
1000 ms, and the number within 150 ms of a move of a slider; both are measured in Chromium, where there is one, before
the clients come. Times depend on whatever else runs on the machine; `load` says how much that was.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.records import RunRecord
from recallscope.runs.store import RunStore
from recallscope.specs import RunSpec
from recallscope.tasks.associative_recall import MQARSpec

WARM = 10.0  # seconds
GROWTH = 1.1  # of the server's memory in the second half
MOVES = """async () => {
  const [slider, number] = [document.querySelector("[aria-label='N, state']"), document.getElementById("probability")];
  const times = [];
  for (let move = 0; move < 15; move += 1) {
    const began = performance.now();
    await new Promise((done) => {
      new MutationObserver((_, watch) => { watch.disconnect(); done(); }).observe(number, { attributes: true });
      slider.value = Number(slider.value) + (move % 2 ? -2 : 3);
      slider.dispatchEvent(new Event("input"));
    });
    times.push(performance.now() - began);
    await new Promise((done) => setTimeout(done, 400));
  }
  return times;
}"""


def fill(folder):
    """Some made-up runs."""
    store = RunStore(folder, create=True)
    for D in range(8, 72, 8):
        for N in (2, 4, 8, 16):
            model = LinearMambaSpec(embed_dim=D, state_dim=N)
            spec = RunSpec(task=MQARSpec(vocab_size=512, num_facts=16), model=model)
            p = min(1.0, D * N / 1024)
            store.put(RunRecord(run=spec.content_hash(), spec=spec, test_accuracy=p, val_accuracy=p, test_queries=1000,
                                best_step=1, steps=1, seconds=1.0))  # fmt: skip
    return store


def question(rng, runs):
    """Method, address and body of something the page asks for."""
    kind = rng.choice(("fit", "fit", "fit", "runs", "run", "groups", "memory", "options", "page"))
    if kind == "fit":
        sizes = {"embed_dim": rng.choice((16, 32, 48, 64)), "state_dim": rng.choice((4, 8, 16)), "model": "mamba"}
        return "GET", f"/api/fit?{urlencode(sizes | {'vocab_size': rng.choice((256, 512, 1024))})}", None
    if kind == "memory":
        steps = [["store", rng.randrange(1, 32), rng.randrange(32, 64)] for _ in range(rng.randrange(20))]
        return "POST", "/api/memory", json.dumps({"model": "circuit:compressive:64:32:16:0", "steps": steps})
    paths = {"run": f"/api/run?run={rng.choice(runs)}", "page": rng.choice(("/", "/static/app.js"))}
    return "GET", paths.get(kind, f"/api/{kind}"), None


def client(number, host, runs, ends, times, faults):
    """Ask until the time is over."""
    rng = random.Random(number)
    while time.monotonic() < ends:
        method, path, body = question(rng, runs)
        began = time.monotonic()
        try:
            connection = http.client.HTTPConnection(host, timeout=120)
            connection.request(method, path, body, {"content-type": "application/json"} if body else {})
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            if answer.status != 200 or b'"error"' in data[:20]:
                faults.append((path, answer.status, data[:200].decode(errors="replace")))
        except OSError as error:
            faults.append((path, type(error).__name__, str(error)))
        times.append((path.partition("?")[0], time.monotonic() - began))


def in_browser(address):
    """Milliseconds to the first paint, and from a move of a slider to the new number: best, median and worst."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if not path:
        return {"browser": None}
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page, paints = browser.new_page(), []
        for _ in range(3):
            page.goto(address)
            page.wait_for_selector("[data-name=num_layers] [role=img]")
            paints += page.evaluate("performance.getEntriesByName('first-contentful-paint').map((e) => e.startTime)")
        moves = sorted(page.evaluate(MOVES))
        browser.close()
    best_median_worst = [round(moves[place]) for place in (0, len(moves) // 2, -1)]
    return {"first_paint_ms": sorted(map(round, paints)), "slider_ms": best_median_worst}


def memory(pid):
    """Megabytes of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")) / 1024


def main():
    """Start the server, let the clients ask, watch its memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=50)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = fill(Path(folder) / "store")
        command = [sys.executable, "-m", "recallscope.cli.main", "explore", "--no-browser", str(store.root)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            address = server.stdout.readline().strip()
            host = urlsplit(address).netloc
            client(0, host, store.names(), time.monotonic() + WARM, [], [])  # libraries are loaded when first asked for
            load, seen_by_one = os.getloadavg()[0], in_browser(address)
            times, faults, ends = [], [], time.monotonic() + given.seconds
            jobs = [threading.Thread(target=client, args=(n, host, store.names(), ends, times, faults))
                    for n in range(given.clients)]  # fmt: skip
            for job in jobs:
                job.start()
            seen = []
            while time.monotonic() < ends:
                seen.append(memory(server.pid))
                time.sleep(given.seconds / 20)
            for job in jobs:
                job.join()
            seen.append(memory(server.pid))
        finally:
            server.terminate()
            server.wait()
    half = seen[len(seen) // 2]
    latency = sorted(seconds for _, seconds in times)
    grown = seen[-1] > GROWTH * half + 10
    found = {
        "load": round(load, 1), **seen_by_one,
        "clients": given.clients, "seconds": given.seconds, "requests": len(times), "faults": faults[:5],
        "num_faults": len(faults), "median_seconds": round(latency[len(latency) // 2], 3),
        "p95_seconds": round(latency[int(0.95 * len(latency))], 3),
        "megabytes": {"start": round(seen[0]), "half": round(half), "end": round(seen[-1])}, "memory_flat": not grown,
    }  # fmt: skip
    print(json.dumps(found))
    return 1 if faults or grown else 0


if __name__ == "__main__":
    sys.exit(main())
