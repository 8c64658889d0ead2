"""Mistakes of one sign, index, factor or term in every fast path, and the fast tests that must find each of them.

`python tests/mutations.py [part of a path]` plants them one by one in a copy of `src` and prints which test fails;
the slow test `test_mutations.py` does the same.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/recallscope"


class Mutation(NamedTuple):
    path: str  # below src/recallscope
    right: str  # occurs once in the file
    wrong: str
    tests: str  # below tests; run until the first failure

    @property
    def line(self) -> int:
        text = (ROOT / PACKAGE / self.path).read_text(encoding="utf-8")
        assert text.count(self.right) == 1, f"{self.right!r} is {text.count(self.right)} times in {self.path}"
        return text[: text.index(self.right)].count("\n") + 1


def in_file(path: str, tests: str, *changes: tuple[str, str]) -> list[Mutation]:
    return [Mutation(path, right, wrong, tests) for right, wrong in changes]


MUTATIONS = [
    *in_file(
        "ops/linear_scan.py",
        "ops/test_linear_scan.py",
        ('"... t N, ... tau N -> ... t tau").tril()', '"... t N, ... tau N -> ... t tau").tril(-1)'),
        ("h = h + einsum(x_c, B_c,", "h = einsum(x_c, B_c,"),
        ("if start + chunk < L:", "if start + 2 * chunk < L:"),
        ("<= positions[..., None]", "< positions[..., None]"),
    ),
    *in_file(
        "ops/delta_scan_fla.py",
        "ops/test_delta_scan_fla.py",
        ("log().expand_as(k)", "expand_as(k)"),
        ("scale=1.0", "scale=None"),
        ("a_rows, b_rows, log_rows", "b_rows, a_rows, log_rows"),
        ("return o[..., :P]", "return o[..., -P:]"),
    ),
    *in_file(
        "ops/head_patterns.py",
        "ops/test_head_patterns.py",
        ('-> ... M t tau").tril()', '-> ... M t tau").tril(-1)'),
        ("linear_scan(x_each, B_each, C_each)", "linear_scan(x_each, C_each, B_each)"),
        ("<= positions[..., None]", "< positions[..., None]"),
    ),
    *in_file(
        "ops/conv.py",
        "ops/test_conv.py",
        ("padded[..., tap : tap + L, :]", "padded[..., tap + 1 : tap + 1 + L, :]"),
        ("else x_hat + bias", "else x_hat - bias"),
    ),
    *in_file("ops/conv.py", "ops/test_table_scan.py", ("-1 - ago]", "-ago]")),
    *in_file(
        "ops/csrc/conv.h",
        "ops/test_conv.py",
        ("sum[i] += w[i] * x[i];", "sum[i] -= w[i] * x[i];"),
        ("s * (1 + v[i] * (1 - s))", "s * (1 - v[i] * (1 - s))"),
        ("tap->sum[i] += grad[i] * x[i];", "tap->sum[i] = grad[i] * x[i];"),
        ("x_grad[i] += tap->w[i] * grad[i];", "x_grad[i] += grad[i];"),
        ("room->bias_sum[i] += grad[i];", "room->bias_sum[i] -= grad[i];"),
    ),
    *in_file("ops/csrc/shared.h", "ops/test_conv.py", ("t - (a->width - 1) + j", "t - a->width + j")),
    *in_file(
        "ops/csrc/shared.h",
        "ops/test_selective_scan.py",
        ("asked->next[q] = asked->first[t];", "asked->next[q] = -1;"),
        ("asked->end = t + 1;", "asked->end = t;"),
    ),
    *in_file(
        "ops/csrc/lanes.h",
        "ops/test_selective_scan.py",
        ("(v < 0 ? 0 : v) + 2 * s *", "(v < 0 ? 0 : v) + s *"),
        ("return v > 20 ? 1 : NAME(sigmoid)(v);", "return v > 20 ? 1 : NAME(sigmoid)(-v);"),
        ("r = (x - k * LOG_OF_2_HIGH) - k * LOG_OF_2_LOW", "r = (x - k * LOG_OF_2_HIGH)"),
    ),
    *in_file(
        "ops/csrc/scan.h",
        "ops/test_selective_scan.py",
        ("* h_j[i] + now.write[i] * B_j", "* h_j[i] - now.write[i] * B_j"),
        ("y[i] = b->skip[i] * now.x[i];", "y[i] = b->skip[i];"),
        ("now->v[i] += b->bias[i];", "now->v[i] -= b->bias[i];"),
    ),
    *in_file(
        "ops/csrc/scan_back.h",
        "ops/test_selective_scan.py",
        ("g_j[i] = passed_on;", "g_j[i] = g;"),
        ("delta_grad[i] * (real)LOG_OF_2 + now->x[i]", "delta_grad[i] + now->x[i]"),
        ("*h = k->h + (t - k->start + 1) * N * W;", "*h = k->h + (t - k->start) * N * W;"),
        ("k->bias_grad[i] += delta_grad[i];", "k->bias_grad[i] -= delta_grad[i];"),
        ("A_grad_j[i] += by_exponent * now->delta[i];", "A_grad_j[i] += by_exponent * now->v[i];"),
        ("x_grad[i] += b->skip[i] * y_grad[i];", "x_grad[i] += y_grad[i];"),
        ("for (int64_t part = 1; part < count; part++)", "for (int64_t part = 2; part < count; part++)"),
        ("if (!kept) memset(k->h, 0, step * sizeof(real));", "kept = NULL, memset(k->h, 0, step * sizeof(real));"),
    ),
    *in_file(
        "ops/selective_scan.py",
        "ops/test_selective_scan.py",
        ("y_hat + skip * x_hat", "y_hat - skip * x_hat"),
        ("steps = softplus(delta + delta_bias)", "steps = softplus(delta)"),
        ("same.tril(-1).sum(dim=-1)", "0 * same.tril(-1).sum(dim=-1)"),
    ),
    *in_file(
        "ops/selective_scan_torch.py",
        "ops/test_selective_scan.py",
        ("h[t].addcmul_(A_bar[t], h[t - 1])", "h[t].addcmul_(A_bar[t - 1], h[t - 1])"),
        ("range(len(g) - 2, -1, -1)", "range(len(g) - 2, 0, -1)"),
        ("delta_grad[1:, now] += torch", "delta_grad[1:, now] -= torch"),
        ("g_A_h.mul_(delta_r[1:, ..., None])", "g_A_h.mul_(delta_r[:-1, ..., None])"),
        ("x_grad[:, now] = delta_r * g_B", "x_grad[:, now] = g_B"),
    ),
    *in_file(
        "ops/csrc/delta_scan.h",
        "ops/test_delta_scan.py",
        ("(b[j] * u[i] + k[j] * v[i]);", "(b[j] * u[i] - k[j] * v[i]);"),
        ("G[j * K + i] = w_j * G[j * K + i] + a[j]", "G[j * K + i] = G[j * K + i] + a[j]"),
        ("w_grad[j * channel] += NAME(across)(met);", "w_grad[j * channel] = NAME(across)(met);"),
        ("q_grad[j] += NAME(across)(met);", "q_grad[j] = NAME(across)(met);"),
        ("s, b, query, b->S + (i + 1) * step, K", "s, b, query, b->S + i * step, K"),
        ("u_grad[i] += by[j] * G[j * K + i];", "u_grad[i] -= by[j] * G[j * K + i];"),
        ("if (!kept) memset(b->S, 0, step", "kept = NULL, memset(b->S, 0, step"),
        ("G[j * K + i] *= w[j * channel];", "G[j * K + i] *= w[0];"),
    ),
    *in_file(
        "ops/delta_scan.py",
        "ops/test_delta_scan.py",
        ("u = match(a, k, before=True) @ v", "u = match(a, k) @ v"),
        ("solve_triangular(-match(a, b", "solve_triangular(match(a, b"),
        ("key if fading is None else key * fading[:, :, -1]", "key"),
        ("a * pad(since_start[:, :, :-1], (0, 0, 1, 0), value=1.0)", "a * since_start"),
        ("torch.where(lower.tril(-1)[..., None]", "torch.where(lower[..., None]"),
        ("S = S if since_start is None else since_start[:, :, -1, :, None] * S", "pass"),
        ("writes.append((b, u))", "pass"),
    ),
    *in_file(
        "ops/mesa.py",
        "ops/test_mesa.py",
        ("torch.linalg.solve(H + torch.diag_embed(ridge), q)", "torch.linalg.solve(H - torch.diag_embed(ridge), q)"),
        ("delta_scan(units, k, keys, w, positions", "delta_scan(units, k, keys, positions"),
        ("delta_scan(units, k, keys, w,", "delta_scan(units, keys, keys, w,"),
    ),
    *in_file(
        "ops/attention.py",
        "ops/test_softmax_attention.py",
        ("masked_fill(hidden, -torch.inf).softmax", "masked_fill(hidden, 0.0).softmax"),
        ("(tokens if positions is None else positions)", "(tokens if positions is None else positions + 1)"),
        ("tokens <= here - window", "tokens < here - window"),
    ),
    *in_file(
        "ops/ssd.py",
        "ops/test_ssd.py",
        ("fading[..., -1, :], B_c", "fading[..., 0, :], B_c"),
        ("kept = kept + since_start[..., -1, None, None] * h", "kept = kept + h"),
        ("masked_fill(~lower.tril(-1), 0.0)", "masked_fill(~lower, 0.0)"),
        ("written = x_c * delta_c[..., None]", "written = x_c"),
    ),
    *in_file(
        "ops/csrc/table_scan.h",
        "ops/test_table_scan.py",
        ("{&asked, C, dy, B, du}", "{&asked, B, dy, C, du}"),
        (
            "NAME(scan_against_order)(&(NAME(meeting)){&asked, dy, C, u, dB}",
            "NAME(scan_in_order)(&(NAME(meeting)){&asked, dy, C, u, dB}",
        ),
        ("t - (s->width - 1 - tap)", "t - (s->width - tap)"),
        ("there[i] = i < last ?", "there[i] = i < last - 1 ?"),
        ("FOR_EACH_KEY(j) h[j][k] += keys[j] * v;", "FOR_EACH_KEY(j) h[j][k] -= keys[j] * v;"),
        ("const int64_t B_at = (s->B_heads > 1 ? head : 0) * N;", "const int64_t B_at = 0;"),
    ),
    *in_file(
        "ops/table_scan.py",
        "ops/test_table_scan.py",
        ("B, u, C = hashed.split", "C, u, B = hashed.split"),
    ),
    *in_file(
        "ops/query_loss.py",
        "ops/test_query_loss.py",
        ("grad_y.sub_(mean_E, alpha=eps)", "grad_y.add_(mean_E, alpha=eps)"),
        ("addmm_(y_part.T, p, alpha=1 / Q)", "addmm_(y_part.T, p, alpha=1 / len(y_part))"),
        ("alpha=eps / (Q * V)", "alpha=eps / Q"),
        ("surprise.sum() - eps * torch.dot", "surprise.sum() + eps * torch.dot"),
        ("normaliser.sub_(right, alpha=keep)", "normaliser.sub_(right)"),
        ("p.new_full((1, 1), -keep)", "p.new_full((1, 1), -1.0)"),
    ),
    *in_file(
        "ops/csrc/round.h",
        "ops/test_state_rounding.py",
        ("near > code ? near - 1 : near", "near"),
        ("size > largest ? size : largest", "x[i] > largest ? x[i] : largest"),
        ("chance[i] < code - below", "chance[i] < near - below"),
    ),
    *in_file("ops/csrc/softmax.h", "ops/test_query_loss.py", ("x[answer] -= keep;", "x[answer] -= 1;")),
    *in_file(
        "architectures/mamba_step.py",
        "train/test_full_step.py",
        ("addcmul_(unit, along, value=-1)", "addcmul_(unit, along, value=1)"),
        ("sigma + gate * (1 - sigma)", "sigma + gate"),
        ("grad_q.addcmul_(grad, skip)", "pass"),
        ("        grad_source.index_add_(0, ids_asked, grad)\n", "        pass\n"),
        ("grad_of(mixer.A_log).addcmul_(by.A, A)", "grad_of(mixer.A_log).add_(by.A)"),
        ("index_add_(0, asked, grad_C @ W_read)", "index_add_(0, asked, grad_C @ W_read, alpha=-1)"),
        ("grad_of(bias).add_(grads.bias)", "pass"),
        ("grad_alpha = (by_y @ x_hat.mT).mul_(seen)", "grad_alpha = by_y @ x_hat.mT"),
        ("grad_x.addmm_(grad_delta, W_delta)", "grad_x.addmm_(grad_delta, W_delta, alpha=2)"),
    ),
    *in_file(
        "architectures/linear_mamba_model.py",
        "train/test_deep_step.py",
        ("(R * self.W_conv.T[:, None])", "(R * self.W_conv.T.flip(0)[:, None])"),
    ),
    *in_file(
        "architectures/multihead_model.py",
        "train/test_deep_step.py",
        ("self.W_x.transpose(0, 1).flatten(0, 1) @ values", "self.W_x.flatten(0, 1) @ values"),
    ),
    *in_file("architectures/model.py", "train/test_deep_step.py", ("loss if share == 1 else loss * share", "loss")),
    *in_file(
        "train/optimizer.py",
        "train/test_adamw.py",
        ("math.sqrt(1 - beta_2**self.steps)", "math.sqrt(1 - beta_1**self.steps)"),
        ("mul_(1 - learning_rate * self.decay)", "mul_(1 + learning_rate * self.decay)"),
        ("factor = scale * min(", "factor = min("),
        ("addcmul_(grad, grad, value=1 - beta_2)", "addcmul_(grad, grad, value=beta_2)"),
    ),
]


def first_failure(mutation: Mutation, folder: Path) -> str | None:
    """The test that finds the mistake, planted in a copy of `src` in `folder`; None if none does."""
    source = folder / "src"
    if not source.exists():
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    path, right = source / "recallscope" / mutation.path, (ROOT / PACKAGE / mutation.path).read_text(encoding="utf-8")
    assert mutation.line
    path.write_text(right.replace(mutation.right, mutation.wrong), encoding="utf-8")
    options = ["-x", "-q", "--tb=no", "-m", "not slow", "--hypothesis-profile=unshrunk", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, f"tests/{mutation.tests}"]
    quick = {"RECALLSCOPE_CFLAGS": "-O1", "RECALLSCOPE_CACHE": str(folder)}
    surroundings = os.environ | quick | {"PYTHONPATH": str(source)}
    try:
        done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    finally:
        path.write_text(right, encoding="utf-8")
    if done.returncode == 0:
        return None
    found = re.search(r"^FAILED (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    assert found, f"no test ran to its end:\n{done.stdout}\n{done.stderr}"
    return found[1]


def main() -> None:
    """Print a row of the table for each mutation."""
    chosen = [mutation for mutation in MUTATIONS if not sys.argv[1:] or sys.argv[1] in mutation.path]
    with tempfile.TemporaryDirectory() as folder:
        for mutation in chosen:
            found = first_failure(mutation, Path(folder))
            right, wrong = (" ".join(text.split()) for text in (mutation.right, mutation.wrong))
            print(f"| `{mutation.path}:{mutation.line}` | `{right}` → `{wrong}` | {found} |", flush=True)


if __name__ == "__main__":
    main()
