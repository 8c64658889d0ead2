"""Mistakes of one sign, index, factor or term in every fast path, and the fast tests that must find each of them.

`python tests/mutations.py [part of a path] [--rows FILE]` plants them one by one in a copy of `src` and prints a row
of a table for each, with the test that fails. Every test run is forked from one process that has torch loaded. Rows
are kept in FILE: one whose file and tests are as they were is not made again, so that a run which was stopped goes on.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "recallscope"


class Mutation(NamedTuple):
    path: str  # below src/recallscope
    right: str  # occurs once in the file
    wrong: str
    tests: str  # below tests; run until the first failure

    @property
    def source(self) -> str:
        return (PACKAGE / self.path).read_text(encoding="utf-8")

    @property
    def line(self) -> int:
        text = self.source
        assert text.count(self.right) == 1, f"{self.right!r} is {text.count(self.right)} times in {self.path}"
        return text[: text.index(self.right)].count("\n") + 1

    @property
    def key(self) -> str:
        """Of this mistake, in this source, looked for by these tests."""
        parts = (self.source, self.right, self.wrong, (ROOT / "tests" / self.tests).read_text(encoding="utf-8"))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


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
        ("a_rows, b_rows, log_rows, scale", "b_rows, a_rows, log_rows, scale"),
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
    *in_file(
        "ops/compiled.py",
        "ops/test_operators.py",
        ("fake, lib=LIBRARY)", "compute, lib=LIBRARY)"),
        ("_dynamo_marked_constant = True", "_dynamo_marked_constant = False"),
    ),
    *in_file(
        "ops/delta_scan_compiled.py",
        "ops/test_delta_scan.py",
        ("ctx.save_for_backward(*inputs[:7], output[1])", "ctx.save_for_backward(*inputs[:6], None, output[1])"),
        ("0 if scan.w is None else scan.w.shape[-1],", "0 if scan.w is None else 1,"),
        ("if x is not None), grads, strict=False)", "), grads, strict=False)"),
        ("for x in inputs[:6]), None, None", "for x in inputs[:5]), None, None, None"),
    ),
    *in_file(
        "ops/delta_scan_compiled.py",
        "ops/test_operators.py",
        ("scan.q.new_empty(*scan.q.shape[:3], P)", "scan.k.new_empty(*scan.k.shape[:3], P)"),
    ),
    *in_file(
        "ops/selective_scan_compiled.py",
        "ops/test_selective_scan.py",
        ("ctx.softplus = inputs[8]", "ctx.softplus = False"),
        ("arguments.B_grad_stride = arguments.C_grad_stride = scan.A.shape[1]", "pass"),
    ),
    *in_file(
        "ops/table_scan.py",
        "ops/test_table_scan.py",
        ("ctx.sizes = inputs[3:]", "ctx.sizes = (*inputs[3:6], 1, 1)"),
        ("(R - (heads.B + heads.C) * reading.state_dim) // heads.x", "(R - (1 + heads.C) * reading.state_dim)"),
    ),
    *in_file(
        "ops/rotary.py",
        "architectures/test_published_layers.py",
        ("first * cos - second * sin", "first * cos + second * sin"),
        ("second * cos + first * sin", "second * cos - first * sin"),
        ("dtype=x.dtype, device=x.device) / half", "dtype=x.dtype, device=x.device) / x.shape[-1]"),
    ),
    *in_file(
        "ops/rotary.py",
        "agreement/test_answer_is_forward_where_asked.py",
        ("if positions is None else positions", "if positions is None else positions * 0"),
    ),
    *in_file(
        "ops/state_rounding.py",
        "ops/test_state_rounding.py",
        ("exponent = torch.frexp(x).exponent - 1", "exponent = torch.frexp(x).exponent"),
        ("min=number.least_exponent", "min=number.least_exponent - 1"),
        ("chance < counted - below", "chance < below"),
        ("(0, -N % size)", "(0, N % size)"),
        ("2**precision.residual_bits - 2", "2**precision.residual_bits"),
        ('== "tensor" else 1)', '== "row" else 1)'),
    ),
    *in_file(
        "architectures/stored_state.py",
        "architectures/test_stored_state.py",
        ("self.first - 1 == step.t", "self.first == step.t"),
        ("(step.t + 1) % precision.every", "step.t % precision.every"),
        ("return stored + kept_residual(state, stored, precision), stored", "return stored, stored"),
    ),
    *in_file(
        "architectures/outer_products.py",
        "architectures/test_stored_state.py",
        ("return self.write(t) + (state if", "return self.write(t) - (state if"),
        ("self.decay(t).square().mean", "self.decay(t).mean"),
    ),
    *in_file(
        "architectures/attention_layers.py",
        "architectures/test_reference_layers.py",
        ("window=self.spec.window", "window=self.spec.window + 1"),
    ),
    *in_file(
        "architectures/attention_layers.py",
        "architectures/test_reference_layers.py",
        ("+ (soft - soft.detach())", ""),
        ('routed(q, gates["read"])', 'routed(q, gates["write"])'),
        ('torch.sigmoid(gates["beta"]) * k', "k"),
    ),
    *in_file(
        "architectures/attention_layers.py",
        "agreement/test_answer_is_forward_where_asked.py",
        ('heads_at(drive.gates["read"], positions)', 'heads_at(drive.gates["read"], None)'),
    ),
    *in_file(
        "architectures/mamba3_layers.py",
        "architectures/test_reference_layers.py",
        ('* softplus(gates["step"])).cumsum', ").cumsum"),
        ("(1 - mix) * step * alpha * k_before", "(1 - mix) * step * k_before"),
        ("both(alpha, torch.ones_like(alpha))", "both(torch.ones_like(alpha), alpha)"),
        ("self.norm_k(k) + self.k_bias", "self.norm_k(k) - self.k_bias"),
        ("o + self.skip * heads_at", "o - self.skip * heads_at"),
    ),
    *in_file(
        "architectures/delta_layers.py",
        "architectures/test_reference_layers.py",
        ("torch.cat((alpha, torch.ones_like(alpha)", "torch.cat((alpha, alpha"),
        ("k if w is None else w * k, -write", "k, -write"),
    ),
    *in_file(
        "architectures/delta_layers.py",
        "architectures/test_reference_layers.py",
        ("* k.square()", "* k"),
        ("b=m * plain.b", "b=plain.b"),
    ),
    *in_file(
        "tasks/drawing.py",
        "tasks/test_keys_of_several_tokens.py",
        ("shared.scatter(2, own, False)", "shared"),
        ("task.rows + cells % task.columns", "cells % task.columns"),
        ("< task.rho", "<= 1 - task.rho"),
        ("starts = task.context_length + m *", "starts = task.context_length + (m - 1) *"),
        ("new += new >= old", "new += new > old"),
    ),
]


def first_failure(mutation: Mutation, folder: Path) -> str | None:
    """The test that finds the mistake, planted in a copy of `src` in `folder`; None if none does."""
    source = folder / "src"
    if not source.exists():
        shutil.copytree(PACKAGE.parent, source, ignore=shutil.ignore_patterns("__pycache__"))
    planted, right = source / "recallscope" / mutation.path, mutation.source
    assert mutation.line
    planted.write_text(right.replace(mutation.right, mutation.wrong), encoding="utf-8")
    with tempfile.TemporaryFile("w+") as said:
        pid = os.fork()
        if not pid:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            try:
                os._exit(_run_tests(mutation, folder))
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(70)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said.seek(0)
        text = said.read()
    planted.write_text(right, encoding="utf-8")
    if code == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$|(?<= in )(test_\w+)$", text, re.MULTILINE)
    assert found, f"no test ran to its end:\n{text}"
    return found[1] or f"tests/{mutation.tests}::{found[2]} (it crashed)"


def _run_tests(mutation: Mutation, folder: Path) -> int:
    """pytest's exit code."""
    import pytest

    sys.path[0] = str(folder / "src")
    sys.dont_write_bytecode = True  # two mistakes in one second may have one size
    os.environ |= {"RECALLSCOPE_CFLAGS": "-O1", "RECALLSCOPE_CACHE": str(folder), "PYTHONPATH": sys.path[0]}
    options = ["-x", "-q", "--tb=no", "--assert=plain", "-m", "not slow"]
    options += ["--hypothesis-profile=unshrunk", "-p", "no:cacheprovider"]
    code = pytest.main([*options, str(ROOT / "tests" / mutation.tests)])
    sys.stdout.flush()
    return code


def main() -> int:
    """Print the table; 1 if a mistake is not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", default="")
    parser.add_argument("--rows", type=Path)
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import hypothesis  # noqa: F401 (loaded once, before the forks)
    import scipy.stats  # noqa: F401
    import torch  # noqa: F401

    lines = asked.rows.read_text().splitlines() if asked.rows and asked.rows.exists() else []
    known, missed = dict(json.loads(line) for line in lines), 0
    with tempfile.TemporaryDirectory() as folder:
        for mutation in (mutation for mutation in MUTATIONS if asked.part in mutation.path):
            if mutation.key not in known:
                known[mutation.key] = first_failure(mutation, Path(folder))
                if asked.rows:
                    with asked.rows.open("a") as rows:
                        rows.write(json.dumps([mutation.key, known[mutation.key]]) + "\n")
            found = known[mutation.key]
            missed += found is None
            right, wrong = (" ".join(text.split()) for text in (mutation.right, mutation.wrong))
            where = f"{mutation.path}:{mutation.line}"
            print(f"| `{where}` | `{right}` → `{wrong}` | {found or '**no test**'} |", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
