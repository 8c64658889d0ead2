"""The explorer answers its own page and nobody else, no request makes it stumble, and the page asks nobody else."""

import json
import logging
import os
import random
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from explored import HOST, serving
from starlette.testclient import TestClient

from recallscope.web import predict, server
from recallscope.web.guard import MOST_BODY
from recallscope.web.server import ROUTES, is_loopback, listen, make_app, page_files
from recallscope.web.store_set import StoreSet

JSON = {"content-type": "application/json"}
POSTED = ("POST /api/memory HTTP/1.1", f"Host: {HOST}", "Content-Type: application/json", "Content-Length: 50")
SLOW_BODY = "\r\n".join((*POSTED, "", "{")).encode()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", f"{HOST}.evil.example", "", "[::1]:8000"])
def test_other_hosts_are_refused(host, client):
    """A name on the web may point to 127.0.0.1 (DNS rebinding): the browser then sends that name."""
    for path in ("/", "/api/runs", "/api/nothing", "/static/app.js"):
        assert client.get(path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": f"https://{HOST}"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}, 200),
        ({}, 200),
    ],
)
def test_posts_of_other_sites_are_refused(headers, code, client):
    body = json.dumps({"model": "weights:0"})
    assert client.post("/api/memory", content=body, headers=JSON | headers).status_code == code
    if headers.get("sec-fetch-site") == "cross-site":
        assert client.get("/api/runs", headers=headers).status_code == 403


def test_large_bodies_are_refused_with_and_without_a_length(client):
    assert client.post("/api/memory", content=b" " * (MOST_BODY + 1), headers=JSON).status_code == 413

    def pieces():
        for _ in range(40):
            yield b" " * 4096

    assert client.post("/api/memory", content=pieces(), headers=JSON).status_code == 413


@pytest.mark.parametrize(
    "path", ["/", "/static/app.js", "/static/style.css", "/api/options", "/nothing", "/api/memory"]
)
def test_every_answer_carries_the_policy(path, client):
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe-eval" not in policy
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "/static//etc/passwd",
        "/static/%2fetc%2fpasswd", "/../../etc/passwd", "/static/index.html%00.js",
        "/api/run?run=../../../etc/passwd", "/api/pictures?model=run:0:../../etc", "/api/pictures?model=weights:99",
        "/api/pictures?model=weights:-1", "/api/pictures?model=run:0:" + "a" * 24, "/api/runs?store=-1",
        "/api/figure?name=../../etc/passwd", "/api/findings?experiment=../x",
    ],
)  # fmt: skip
def test_no_path_leads_out(path, client):
    answer = client.get(path)
    assert 400 <= answer.status_code < 500, answer.text
    assert "root:" not in answer.text


def test_a_link_out_of_a_store_is_not_followed(store_set, tmp_path):
    store = store_set.stores[0]
    run = "ab" * 12
    folder = store.runs / run
    folder.mkdir()
    try:
        os.symlink(store_set.weights[0], folder / "weights.safetensors")
        with pytest.raises(ValueError, match="no weights"):
            store_set.weights_of(store, run)
    finally:
        (folder / "weights.safetensors").unlink()
        folder.rmdir()


def test_other_methods_are_refused(client):
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert client.request(method, "/api/runs").status_code == 405
    assert client.post("/api/runs", json={}).status_code == 405
    assert client.get("/api/memory").status_code == 405


WORDS = [*predict.PredictQuery.model_fields, "store", "where", "run", "group", "law", "seed", "name", "experiment", "x"]
VALUES = [
    "", "0", "1", "-1", "7", "16", "64", "4097", "9" * 40, "0.5", "1e309", "nan", "inf", "0x10", "१२", "true", "[]",
    "x", "MHA", "ar", "mqar", "linear_mamba", "mamba", "designed", "unified-mv", "layers", "fig-2", "weights:0",
    "run:0:x",
    "circuit:ideal:64:1:1:0", "circuit:nothing:2:1:1:1", "state_dim<=8", "model=linear_mamba", "seed!=", "a" * 600, "%",
    "'; drop table now; --", "../../etc/passwd", "\x00", "\ud7ff☃",
]  # fmt: skip


def nonsense(rng):
    """Some JSON that is nearly a question."""
    kinds = (
        lambda: rng.choice(VALUES),
        lambda: rng.choice((0, 1, -1, 3, 40, 2**70, 0.5, True, None)),
        lambda: [nonsense(rng) for _ in range(rng.randrange(4))],
        lambda: {rng.choice(("model", "steps", "ask", "x")): nonsense(rng) for _ in range(rng.randrange(4))},
        lambda: [[rng.choice(("store", "forget", "overwrite", "clear")), rng.randrange(-2, 70), rng.randrange(70)]],
    )
    return rng.choice(kinds)()


def test_a_thousand_crooked_requests_get_an_answer(store_set, monkeypatch, caplog):
    """Answered with a sentence or with data: no server error, no traceback, nothing in the log."""
    monkeypatch.setattr(predict, "MOST_SECONDS", 0.01)
    slow = {"architectures", "architecture_curves", "findings", "figure"}
    paths = [f"/api/{name}" for name in (*ROUTES, "fit") if name not in slow]
    rng = random.Random(20)
    codes = []
    app = make_app(store_set, frozenset([HOST]))
    with caplog.at_level(logging.WARNING), TestClient(app, base_url=f"http://{HOST}") as client:
        for number in range(1000):
            path = rng.choice([*paths, f"/{rng.choice(VALUES)!r}", "/api/memory", "/api/findings", "/api/figure"])
            if path == "/api/memory" and rng.random() < 0.8:
                body = json.dumps(nonsense(rng)) if rng.random() < 0.3 else json.dumps(
                    {"model": rng.choice(VALUES), "steps": nonsense(rng), "ask": nonsense(rng)})  # fmt: skip
                answer = client.post(path, content=body[: rng.randrange(1, 400)], headers=JSON)
            else:
                fields = {rng.choice(WORDS): rng.choice(VALUES) for _ in range(rng.randrange(4))}
                if path == "/api/fit" and fields.get("model") not in ("x", "nan"):
                    fields["model"] = "mamba"
                if path in ("/api/findings", "/api/figure"):
                    fields["no"] = str(number)  # or they would be drawn
                answer = client.get(path, params=fields)
            codes.append(answer.status_code)
            assert 200 <= answer.status_code < 500, (path, answer.status_code, answer.text)
            assert "Traceback" not in answer.text
            assert 'File "' not in answer.text
    assert caplog.records == []
    assert min(codes.count(200), len([code for code in codes if code >= 400])) > 50  # both were tried


def test_what_cannot_be_foreseen_is_a_sentence_too(client, monkeypatch, caplog):
    monkeypatch.setattr(server, "has_torch", lambda: 1 / 0)
    answer = client.get("/api/options")
    assert answer.status_code == 500
    assert "internal error, ZeroDivisionError" in answer.json()["error"]


def test_laws_and_stores_need_no_torch(store_set):
    code = f"""
import sys
sys.modules["torch"] = None
from starlette.testclient import TestClient
from recallscope.runs.store import RunStore
from recallscope.web.server import make_app
from recallscope.web.store_set import StoreSet
client = TestClient(make_app(StoreSet([RunStore({str(store_set.stores[0].root)!r})]), frozenset(["a:1"])), base_url="http://a:1")
assert client.get("/api/options").json()["torch"] is False
for name in ("fit?model=mamba", "runs", "groups", "group?law=unified", "architectures", "claims", "models"):
    assert client.get(f"/api/{{name}}").status_code == 200, name
print(client.post("/api/memory", json={{"model": "circuit:compressive:64:32:16:0"}}).json()["error"])
from recallscope.cli.main import main
assert main(["sample", "--vocab-size", "64", "--num-facts", "4"]) == 2
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "needs torch" in done.stdout, done.stderr
    assert "pip install 'recallscope[torch]'" in done.stdout
    assert "recallscope[torch]" in done.stderr  # the command


def test_it_listens_on_this_machine(monkeypatch):
    listener, hosts = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    assert hosts == {f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"}
    with pytest.raises(ValueError, match="--port 0"):
        listen("127.0.0.1", port)
    listener.close()
    assert [is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost", "0.0.0.0", "10.0.0.1")] == [
        True, True, True, True, False, False,
    ]  # fmt: skip


def test_an_empty_store_set_answers_in_sentences():
    with TestClient(make_app(StoreSet(), frozenset([HOST])), base_url=f"http://{HOST}") as client:
        assert client.get("/api/options").json()["stores"] == []
        for name in ("runs", "groups", "architectures", "live"):
            assert "--store DIR" in client.get(f"/api/{name}").json()["error"]


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: ", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /", SLOW_BODY]
)
def test_who_does_not_finish_asking_is_hung_up_on(store_set, monkeypatch, sent):
    """Nothing at all, half the headers, those of a second request, or a body that does not come."""
    monkeypatch.setattr(server, "ASK_SECONDS", 0.3)
    with serving(store_set, server.config) as listener, socket.create_connection(listener.getsockname(), 30) as ours:
        ours.sendall(sent)
        while ours.recv(2**16):  # b"" once it is closed; a timeout is an error
            pass


def test_scripts_and_styles_are_small_and_load_nothing_from_elsewhere():
    own = page_files()
    assert sum(map(len, own.values())) < 90_000
    for name, data in own.items():
        assert re.findall(rb"https?://|//cdn|@import|innerHTML|eval\(", data) == [], name


def test_every_view_has_a_small_picture_in_the_docs():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "howto" / "explore.md").read_text(encoding="utf-8")
    for view in re.findall(r'href="#(\w+)"', page_files()["index.html"].decode())[1:]:
        assert f"explore-{view}.png" in page
        assert (root / "docs" / "figures" / f"explore-{view}.png").stat().st_size < 300_000
