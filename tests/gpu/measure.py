#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What run.sh runs once hptrain is built: checks on one card (and on several, where there are; more
of them in variants.py), then a benchmark beside PyTorch and a roofline of one step (roofline.py).
Writes OUT/results.json and OUT/results.md; exit code 1 when a check failed. Each run is a whole
hptrain process, started as by hand (hptrain --workload FILE).
"""
import argparse
import array
import concurrent.futures
import itertools
import json
import os
import platform
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import threading
import time

import torch

import roofline
import variants
from judged import RunFailed, judged, same, worst

HERE = os.path.dirname(os.path.abspath(__file__))


def model(dim, layers, heads, kv_heads, ffn, vocab, tied=False):
    return {"dim": dim, "layers": layers, "heads": heads, "kv_heads": kv_heads, "ffn": ffn,
            "vocab": vocab, "tied": tied}


# Llama 3.2 1B and 3B, Llama 3 8B (trainer: common/base/model_presets.cc).
MODELS = {
    "1B": model(2048, 16, 32, 8, 8192, 128256, tied=True),
    "3B": model(3072, 28, 24, 8, 8192, 128256, tied=True),
    "8B": model(4096, 32, 32, 8, 14336, 128256),
}
SMALL = model(256, 4, 8, 2, 768, 2048)
# Dense bf16, TFLOP/s: vendors' data sheets.
PEAK = {"H100 80GB HBM3": 989, "H100 SXM": 989, "H200": 989, "A100": 312, "B200": 2250}


def write_dataset(prefix, tokens, vocab):
    """Random tokens as a Megatron-LM indexed dataset (int32) of documents of 1 to 99 tokens."""
    source = random.Random(7)
    values = array.array("i", (source.randrange(vocab) for _ in range(tokens)))
    lengths = [1 + 7 * i % 99 for i in range(tokens // 51)]
    with open(prefix + ".bin", "wb") as out:
        values[:sum(lengths)].tofile(out)
    n = len(lengths)
    with open(prefix + ".idx", "wb") as out:
        out.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, n, n + 1))
        out.write(struct.pack(f"<{n}i", *lengths))
        begins = itertools.accumulate((4 * length for length in lengths), initial=0)
        out.write(struct.pack(f"<{n}q", *itertools.islice(begins, n)))
        out.write(struct.pack(f"<{n + 1}q", *range(n + 1)))


def lines_in(path):
    """0 where it is not there yet."""
    try:
        with open(path) as lines:
            return sum(1 for _ in lines)
    except FileNotFoundError:
        return 0


class Trainer:
    """hptrain, run by run; several at a time where there is a processor for each, because a run is
    one process of one thread and waits for its GPU most of the time."""

    def __init__(self, program, scratch, kept, limit_s=900):
        """The logs of runs that failed stay in the directory `kept`."""
        self.program, self.scratch, self.kept, self.limit_s = program, scratch, kept, limit_s
        self.numbers = itertools.count(1)
        self.data = {}
        self.making_data = threading.Lock()
        self.pool = concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1))

    def dataset(self, vocab):
        with self.making_data:
            if vocab not in self.data:
                self.data[vocab] = os.path.join(self.scratch, f"tokens-{vocab}")
                write_dataset(self.data[vocab], 1000000, vocab)
            return self.data[vocab]

    def workload(self, spec, directory):
        m = spec["model"]
        train = {
            "model": {"rope_theta": 5e5, "tied_embeddings": m["tied"],
                      **{k: v for k, v in m.items() if k != "tied"}},
            "lora": spec.get("lora", {}),
            "data": {"path": self.dataset(m["vocab"]), "seq_len": spec["seq_len"],
                     "mask": spec.get("mask", "none")},
            "batch": {"micro": spec["micro"], "global": spec.get("global", spec["micro"])},
            "steps": spec["steps"], "seed": 3, "precision": spec["precision"],
            "optimizer": {"lr": 1e-4, "moments": spec.get("moments", "fp32")},
            "schedule": {"warmup_steps": 2}, "strategy": spec.get("strategy", "full"),
            "shard_group": spec.get("shard_group", 0),
            "loss": {"chunk_tokens": spec.get("chunk_tokens", 0)},
            "memory": {"activation_checkpointing": spec.get("recompute", "none"),
                       "offload": spec.get("offload", [])},
            "gpu": spec.get("gpu", {}),
            "metrics": {"trace_from": spec.get("trace_from", 0),
                        "trace_steps": spec.get("trace_steps", 0)},
        }
        return {
            "job": 1, "name": "gpu", "generation": spec.get("generation", 1),
            "parent_generation": 0, "node": "local", "world_size": spec.get("world_size", 1),
            "rendezvous_dir": os.path.join(directory, "rdzv"), "bind_address": "127.0.0.1",
            "resume_checkpoint": spec.get("resume", ""), "start_step": spec.get("start_step", 0),
            "checkpoint_dir": os.path.join(directory, "checkpoints"), "ledger_dir": "",
            "metrics_path": os.path.join(directory, "metrics.jsonl"),
            "checkpoint": {"every_steps": spec.get("save_every", 0), "every_minutes": 0},
            "train": train,
        }

    def failed(self, number, logs, why, blamed=0):
        """Shows the ends of the logs, keeps them, and gives the exception, which has the last line
        of the rank that is to blame."""
        os.makedirs(self.kept, exist_ok=True)
        last = ""
        for rank, path in enumerate(logs):
            kept = os.path.join(self.kept, f"run-{number}.rank-{rank}.log")
            shutil.copy(path, kept)
            with open(path, errors="replace") as log:
                lines = log.read().strip().split("\n")
            last = lines[-1] if rank == blamed else last
            # Of many that fail in one way not each shall be shown whole.
            shown = 40 if number <= 4 else 5
            print("\n".join([f"--- the end of {kept}", *lines[-shown:], "---"]), flush=True)
        return RunFailed(f"run {number}: {why}; {last}")

    def run(self, spec, stop_after=0):
        """Metrics by step, rank 0's log, and the directory of checkpoints. `stop_after` > 0: ended,
        by SIGKILL and without a checkpoint, after so many steps."""
        number = next(self.numbers)
        directory = os.path.join(self.scratch, f"run-{number}")
        os.makedirs(directory)
        environment = {**os.environ, **spec.get("environment", {})}
        document = self.workload(spec, directory)
        processes, logs = [], []
        for rank in range(document["world_size"]):
            path = os.path.join(directory, f"rank-{rank}.json")
            with open(path, "w") as out:
                json.dump({**document, "rank": rank, "local_rank": rank}, out)
            logs.append(os.path.join(directory, f"rank-{rank}.log"))
            with open(logs[-1], "w") as log:
                processes.append(subprocess.Popen([self.program, "--workload", path],
                                                  env=environment, stderr=log))
        metrics = document["metrics_path"]
        until, stopped = time.monotonic() + self.limit_s, False
        while any(p.poll() is None for p in processes):
            done = lines_in(metrics)
            late = time.monotonic() > until
            if (stop_after and done >= stop_after) or late:
                stopped = done >= stop_after > 0
                for p in processes:
                    p.send_signal(signal.SIGKILL)
                    p.wait()
                if not stopped:
                    raise self.failed(number, logs, f"no end within {self.limit_s} s, {done} steps")
            time.sleep(0.02)
        codes = [p.returncode for p in processes]
        if not stopped and any(codes):
            raise self.failed(number, logs, "exit code " + ", ".join(map(str, codes)),
                              next(rank for rank, code in enumerate(codes) if code != 0))
        with open(logs[0]) as log:
            text = log.read()
        with open(metrics) as lines:
            steps = [json.loads(line) for line in lines if line.endswith("\n")]
        return steps, text, document["checkpoint_dir"]

    def start(self, spec):
        """As run(), beside what comes; what it gives is called for the result."""
        return self.pool.submit(self.run, spec).result


def runtime_of(log):
    """What the log says that the run has used, and why not more."""
    told = ("runtime:", "no fused kernels", "attention: ", "attention over packed")
    lines = [line for line in log.split("\n") if any(text in line for text in told)]
    return "; ".join(lines) or "no such line"


def log_says(what, run, text, expected=True):
    """A row: whether the log of a run has this in it."""
    return judged(what, lambda: (text in run()[1]) == expected, lambda: runtime_of(run()[1]))


def steps_of(run):
    return lambda: run()[0]


# Of kernels_check.cc.
KERNELS = ("rms_norm", "swiglu", "cross_entropy", "rotary", "attention", "adamw", "squares")


def check_kernels(program, device, kind):
    """(exit code, lines) of kernels_check.cc; of one that hangs what it said until then."""
    environment = dict(os.environ)
    if device == "cpu":
        stubs = os.path.join(os.path.dirname(program), "stub_cuda")
        environment["LD_PRELOAD"] = " ".join(os.path.join(stubs, name) for name in
                                             ("libcuda.so.1", "libnvrtc.so.12"))
    with subprocess.Popen([program, device, kind], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as check:
        late = threading.Timer(180, check.kill)
        late.start()
        lines = check.stdout.read().strip().split("\n")
        late.cancel()
    return check.returncode, lines


def kernels_beside_references(trainer, program, device):
    """The kernels of each operation, on the card that is there, by a process of their own: a fault
    of one takes the card from its process."""
    begun = [(kind, trainer.pool.submit(check_kernels, program, device, kind).result)
             for kind in KERNELS]
    for kind, result in begun:
        try:
            code, lines = result()
        except OSError as error:
            yield f"kernels of {kind} beside their reference", False, str(error)
            continue
        print("\n".join(lines), flush=True)
        failed = [line for line in lines if line.startswith("FAILED")][:3]
        yield f"kernels of {kind} beside their reference", code == 0, \
            "; ".join([f"exit code {code}"] * (code != 0) + failed + lines[-1:])


def named_kernels(start, spec, fp32):
    """As checks(): what workload.train.gpu names is had, or refused when the job starts."""
    begun = [(gpu, [start({**spec, "precision": "bf16", "gpu": gpu}) for _ in range(2)])
             for gpu in ({"attention": "flash"}, {"attention": "products"},
                         {"attention": "cudnn", "deterministic": False})]
    for gpu, (first, again) in begun:
        what = "bf16: " + ", ".join(f"{k} {v}" for k, v in gpu.items())
        row = judged(what + ", losses of fp32, to 2e-2",
                     lambda: worst(first()[0], fp32()), below=2e-2)
        if "is not to be had" in row[2]:
            yield what, None, row[2]
            continue
        yield row
        if gpu.get("deterministic", True):
            yield judged(what + ", the same bits run to run",
                         lambda: same(first()[0], again()[0]))


def on_several_cards(start, spec, fp32, cards):
    """As checks(), over NCCL."""
    for strategy in ("full", "shard_grad_op", "optimizer", "no_shard"):
        several, moved = (steps_of(start({**spec, "world_size": 2, "strategy": strategy, **more}))
                          for more in ({}, {"offload": ["parameters" if strategy == "full"
                                                        else "optimizer"]}))
        yield judged(f"fp32: {strategy} on 2 cards, to 1e-4", lambda: worst(several(), fp32()),
                     below=1e-4)
        yield judged(f"fp32: {strategy} on 2 cards, offloaded: the same bits",
                     lambda: same(moved(), several()))
    # Both groups of two where there are four cards, and else two replicas.
    ranks, group = (4, 2) if cards >= 4 else (2, 1)
    several = steps_of(start({**spec, "world_size": ranks, "micro": 1, "strategy": "hybrid",
                              "shard_group": group}))
    yield judged(f"fp32: hybrid on {ranks} cards, groups of {group}, to 1e-4",
                 lambda: worst(several(), fp32()), below=1e-4)


def saved_by(run, name):
    """A checkpoint of a run; of one that failed a directory that is not there."""
    try:
        return os.path.join(run()[2], name)
    except Exception:  # whoever needs it says why
        return "/none/" + name


def checks(trainer, device, cards):
    """Yields (what, passed, detail), of whole runs. What needs no other run is begun at once."""
    spec = {"model": SMALL, "seq_len": 128, "micro": 2, "global": 4, "steps": 8,
            "precision": "fp32", "save_every": 4}
    bf16 = {**spec, "precision": "bf16"}
    plain = {"environment": {"HPTRAIN_DEVICE_KERNELS": "none"}}
    start = trainer.start
    cuda = device == "cuda"
    runs = {"fp32": (start(spec), start(spec)), "bf16": (start(bf16), start(bf16))}
    cpu = steps_of(start({**spec, **variants.ON_CPU}))
    without = {"fp32": start({**spec, **plain}), "bf16": start({**bf16, **plain})} if cuda else {}
    recomputed = steps_of(start({**bf16, "recompute": "full"}))
    moved = {precision: steps_of(start({**spec, "precision": precision, "recompute": "full",
                                        "offload": ["optimizer", "parameters", "activations"]}))
             for precision in ("bf16", "fp32")}
    chunked = steps_of(start({**bf16, "chunk_tokens": 48}))
    first, narrow = steps_of(runs["fp32"][0]), steps_of(runs["bf16"][0])

    yield log_says("computes on the " + device, runs["fp32"][0], "cuda sm_", cuda)
    for precision, (one, two) in runs.items():
        yield log_says(f"{precision}: fused kernels by NVRTC", one, "device_kernels nvrtc", cuda)
        yield judged(f"{precision}: the same bits run to run", lambda: same(one()[0], two()[0]))
    yield judged("fp32: losses of the CPU, to 1e-4", lambda: worst(first(), cpu()), below=1e-4)
    yield judged("bf16: losses of fp32, to 2e-2", lambda: worst(narrow(), first()), below=2e-2)
    # The fused kernels beside LibTorch's operations in whole steps: same losses, other kernels.
    for precision, bound in (("fp32", 1e-4), ("bf16", 2e-2)):
        what = f"{precision}: losses without fused kernels, to {bound:g}"
        if not cuda:
            yield what, None, "no card here"
            continue
        yield log_says(f"{precision}: without fused kernels", without[precision],
                       "device_kernels LibTorch's")
        yield judged(what, lambda: worst(without[precision]()[0], runs[precision][0]()[0]),
                     below=bound)
    yield judged("bf16: recomputation gives the same bits", lambda: same(recomputed(), narrow()))
    for precision, run in moved.items():
        yield judged(f"{precision}: offload gives the same bits",
                     lambda: same(run(), runs[precision][0]()[0]))
    yield judged("bf16: loss in chunks, to 1e-3", lambda: worst(chunked(), narrow()), below=1e-3)
    resumed = steps_of(start({**bf16, "generation": 2, "start_step": 4,
                              "resume": saved_by(runs["bf16"][0], "step-4.g1")}))
    yield judged("bf16: goes on from a checkpoint with the same bits",
                 lambda: same(resumed(), narrow()[4:]), "steps 5 to 8")
    yield from packed_documents(start, {**spec, "mask": "documents"}, first, cuda)
    yield from named_kernels(start, spec, first)
    yield from variants.checks(lambda one: steps_of(start(one)), spec, first, narrow,
                               saved_by(runs["fp32"][0], "step-8.g1"))
    if cards < 2:
        yield "several cards over NCCL", None, f"{cards} card(s) here"
        return
    yield from on_several_cards(start, spec, first, cards)


def packed_documents(start, spec, whole, cuda):
    """As checks(). On a GPU all documents of a micro-batch in one call, in fp32 one by one."""
    one_by_one = steps_of(start(spec))
    narrow, again = (start({**spec, "precision": "bf16"}) for _ in range(2))
    yield judged("fp32: packed documents have losses of their own",
                 lambda: not same(one_by_one(), whole()))
    if cuda:
        yield log_says("bf16: packed documents in one call", narrow, "attention: packed")
    yield judged("bf16: packed documents, losses of fp32, to 2e-2",
                 lambda: worst(narrow()[0], one_by_one()), below=2e-2)
    yield judged("bf16: packed documents, the same bits run to run",
                 lambda: same(narrow()[0], again()[0]))


def row_of(name, seq_len, who, step_ms, peak, flops, tokens, peak_tflops):
    median = statistics.median(step_ms)
    tflops = flops * tokens / median * 1e-9
    return {"model": name, "seq_len": seq_len, "who": who, "step_ms": median,
            "tokens_per_s": tokens / median * 1e3, "tflops": tflops,
            "mfu": tflops / peak_tflops if peak_tflops else None, "peak_memory_bytes": peak}


def result_of_peer(spec):
    """What peer.py prints."""
    try:
        done = subprocess.run([sys.executable, os.path.join(HERE, "peer.py"), json.dumps(spec)],
                              capture_output=True, text=True, timeout=1800)
    except subprocess.TimeoutExpired:
        return {"failed": "no end within 1800 s"}
    said = done.stdout.strip().split("\n")[-1]
    return json.loads(said) if said.startswith("{") else \
        {"failed": (done.stderr.strip().split("\n") or ["ended"])[-1]}


def benchmark(trainer, device, points, peak_tflops):
    for name, m, seq_len, micro, steps, extra in points:
        spec = {"model": m, "seq_len": seq_len, "micro": micro, "steps": 1000,
                "precision": "bf16", **extra}
        tokens, flops = micro * seq_len, None
        skip = max(1, steps // 3)
        try:
            lines, _, _ = trainer.run(spec, stop_after=steps)
            flops = lines[-1]["tflops"] * 1e12 / lines[-1]["tokens_per_s"]
            note = ", ".join(f"{k} {v}" for k, v in extra.items())
            yield row_of(name, seq_len, "hptrain" + (f" ({note})" if note else ""),
                         [s["step_ms"] for s in lines[skip:steps]], lines[-1]["peak_memory_bytes"],
                         flops, tokens, peak_tflops)
        except RunFailed as error:
            yield {"model": name, "seq_len": seq_len, "who": "hptrain", "failed": str(error)}
        for who, compiled, titan in (("PyTorch eager", False, False),
                                     ("PyTorch compiled", True, False),
                                     ("TorchTitan's model, compiled", True, True)):
            peer = {"model": m, "seq_len": seq_len, "micro": micro, "steps": steps,
                    "device": device, "compile": compiled, "torchtitan": titan}
            result = result_of_peer(peer)
            if "failed" in result or flops is None:
                yield {"model": name, "seq_len": seq_len, "who": who,
                       "failed": result.get("failed", "hptrain gave no operations to count by")}
            else:
                yield row_of(name, seq_len, who, result["step_ms"][skip:],
                             result["peak_memory_bytes"], flops, tokens, peak_tflops)


def rooflines(trainer, points, peak_tflops, gigabytes):
    """One per point: a few steps, two of them traced."""
    for name, m, seq_len, micro, _, extra in points:
        traced = 2
        spec = {"model": m, "seq_len": seq_len, "micro": micro, "steps": 7, "precision": "bf16",
                "trace_from": 5, "trace_steps": traced, **extra}
        what = f"{name}, {micro} x {seq_len} tokens"
        try:
            lines, _, checkpoints = trainer.run(spec)
            path = os.path.join(os.path.dirname(checkpoints), "trace", "g1.r0.operations.json")
            step_ms = statistics.mean(s["step_ms"] for s in lines[4:4 + traced])
            times = roofline.measured(path, traced, step_ms)
        except (RunFailed, OSError, ValueError) as error:  # or there is no trace
            print(f"no roofline of {what}: {error}", flush=True)
            continue
        yield {"what": what, "step_ms": step_ms, "ms": times,
               "floor_ms": roofline.floors(m, seq_len, micro,
                                           2 if extra.get("moments") == "bf16" else 4,
                                           extra.get("recompute", "none"), peak_tflops,
                                           gigabytes)}


def markdown(results):
    lines = ["# hptrain on " + results["machine"]["device"], "",
             ", ".join(f"{k} {v}" for k, v in results["machine"].items()), "",
             ", ".join(f"{k} in {v:.0f} s" for k, v in results["seconds"].items()), "",
             "| check | result | |", "| --- | --- | --- |"]
    words = {True: "passed", False: "**FAILED**", None: "left out"}
    for check in results["checks"]:
        detail = check["detail"].replace("|", "\\|")
        lines.append(f"| {check['what']} | {words[check['passed']]} | {detail} |")
    lines += ["", "Medians; operations counted as by hptrain (attention whole).", "",
              "| model | seq | | step ms | tokens/s | TFLOP/s | MFU | peak GiB |",
              "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in results["benchmark"]:
        head = f"| {row['model']} | {row['seq_len']} | {row['who']} | "
        if "failed" in row:
            lines.append(head + f"none: {row['failed']} | | | | |")
            continue
        mfu = "" if row["mfu"] is None else f"{100 * row['mfu']:.1f} %"
        lines.append(head + f"{row['step_ms']:.1f} | {row['tokens_per_s']:.0f} | "
                     f"{row['tflops']:.4g} | {mfu} | {row['peak_memory_bytes'] / 2**30:.1f} |")
    return "\n".join(lines + roofline.markdown(results["roofline"])) + "\n"


PARTS = ("checks", "benchmark", "roofline")


def points_of(cuda):
    """(name, model, tokens of a sequence, sequences, steps, more of the spec)"""
    if not cuda:
        return [("small", SMALL, 128, 2, 6, {})]
    points = [(name, MODELS[name], seq, 8192 // seq, 30, {})
              for name in ("1B", "3B") for seq in (2048, 8192)]
    points += [("1B", MODELS["1B"], 8192, 1, 30, {"gpu": gpu})
               for gpu in ({"deterministic": False},
                           {"attention": "cudnn", "deterministic": False})]
    points += [("8B", MODELS["8B"], seq, 8192 // seq, 12,
                {"moments": "bf16", "recompute": "full"}) for seq in (2048, 8192)]
    points.append(("8B", MODELS["8B"], 8192, 1, 6,
                   {"moments": "bf16", "recompute": "full", "offload": ["optimizer"]}))
    return points


def all_checks(trainer, args, cards):
    """Yields a row of the results for each."""
    begun = time.monotonic()
    for what, passed, detail in itertools.chain(
            kernels_beside_references(trainer, args.kernels_check, args.device),
            checks(trainer, args.device, cards)):
        seconds = time.monotonic() - begun
        begun += seconds
        print(f"{what}: {'left out' if passed is None else passed} ({detail}), "
              f"{seconds:.1f} s", flush=True)
        yield {"what": what, "passed": passed, "detail": detail, "seconds": seconds}


def rows_of_part(part, trainer, args, device, points):
    """Yields the rows of one of PARTS."""
    peak = next((v for k, v in PEAK.items() if k in device), None)
    if part == "checks":
        # A hang shall cost a part of the time that a machine is lent for.
        trainer.limit_s = 180 if args.device == "cuda" else 900
        yield from all_checks(trainer, args,
                              torch.cuda.device_count() if args.device == "cuda" else 0)
        return
    trainer.limit_s = 900
    if part == "benchmark":
        for row in benchmark(trainer, args.device, points, peak):
            print(json.dumps(row), flush=True)
            yield row
        return
    bandwidth = next((v for k, v in roofline.BANDWIDTH.items() if k in device), None)
    for one in rooflines(trainer, points[:1] + points[-2:-1], peak, bandwidth):
        print("\n".join(roofline.markdown([one])), flush=True)
        yield one


def machine(cuda):
    """What a result depends on, of this machine."""
    facts = {"device": torch.cuda.get_device_name(0) if cuda else f"CPU ({platform.machine()})",
             "torch": torch.__version__, "cuda": str(torch.version.cuda),
             "python": platform.python_version()}
    if not cuda:
        return facts
    asked = "driver_version,memory.total,compute_mode,mig.mode.current"
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=" + asked, "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    return {**facts, "capability": ".".join(map(str, torch.cuda.get_device_capability(0))),
            "cards": torch.cuda.device_count(), "cudnn": torch.backends.cudnn.version(),
            **dict(zip(asked.split(","), said.split("\n")[0].split(", ")))}


def write_results(out, results):
    """After each row: what is known stays where a machine is lent for too short a time."""
    for name, text in (("results.json", json.dumps(results, indent=1) + "\n"),
                       ("results.md", markdown(results))):
        with open(os.path.join(out, name), "w") as file:
            file.write(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hptrain", required=True)
    parser.add_argument("--kernels-check", required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", choices=PARTS)
    args = parser.parse_args()
    cuda = args.device == "cuda"
    scratch, kept = (os.path.join(os.path.abspath(args.out), name)
                     for name in ("scratch", "failed"))
    for directory in (scratch, kept):
        shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(scratch)
    results = {"machine": machine(cuda), "checks": [], "benchmark": [], "roofline": [],
               "seconds": {}}
    print(", ".join(f"{k} {v}" for k, v in results["machine"].items()), flush=True)
    trainer = Trainer(args.hptrain, scratch, kept)
    for part in (args.only,) if args.only else PARTS:
        begun = time.monotonic()
        for row in rows_of_part(part, trainer, args, results["machine"]["device"],
                                points_of(cuda)):
            results[part].append(row)
            results["seconds"][part] = time.monotonic() - begun
            write_results(args.out, results)
        print(f"{part}: {time.monotonic() - begun:.0f} s", flush=True)
    shutil.rmtree(scratch)
    failed = [c["what"] for c in results["checks"] if c["passed"] is False]
    if failed:
        print("failed: " + "; ".join(failed))
        if os.path.isdir(kept):
            print("logs of runs that failed: " + kept)
    elif results["checks"]:
        print("all checks passed; see results.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
