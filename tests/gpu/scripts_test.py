#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The parts of tests/gpu that need no GPU: what the roofline makes of a trace, what the peers and
hptrain are told, and that checks fail where they should. By ctest."""
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import benchmark
import checks
import operations
import points
import roofline
import runtime_names
import variants
from host_copies_cases import HostCopies  # run with those here
from judged import NoTimeLeft, RunFailed, judged
from trainer import Trainer

LLAMA_1B = {"dim": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "ffn": 8192, "vocab": 128256,
            "tied": True}
LLAMA_8B = {"dim": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256,
            "tied": False}


def event(name, begin, duration, thread=1, category="gpu"):
    return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": duration, "tid": thread}


class Roofline(unittest.TestCase):
    def test_kernels_have_their_rows(self):
        for name, row in [
                ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(...)", "communication"),
                ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "attention"),
                ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention"),
                ("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NTT", "GEMM"),
                ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "GEMM"),
                ("aten::add_", "gradient adds and residuals"),
                ("Memcpy DtoD (Device -> Device)", "copies and fills"),
                ("nobody_knows_this", roofline.REST)]:
            self.assertEqual(roofline.kind_of(name), row, name)

    def test_our_own_kernels_have_theirs(self):
        rows = {"rms_norm": "norms", "sum_columns": "norms", "swiglu": "activation",
                "rotary": "rope", "log_sums": "loss", "losses": "loss", "cross_entropy": "loss",
                "adamw": "optimizer", "squares": "optimizer", "sum_partials": "optimizer"}
        names = []
        for path in glob.glob(os.path.join(HERE, "../../trainer/kernels/device/*.cuh")):
            with open(path) as text:
                names += re.findall(r"HP_KERNEL\((\w+)", text.read())
        names = [name for name in names if name != "name"]  # the macro's own
        self.assertGreater(len(names), 10)
        for name in names:
            row = next((row for begin, row in rows.items() if name.startswith(begin)), None)
            self.assertEqual(roofline.kind_of(name), row, name)

    def test_of_nested_operations_each_counts_its_own_time(self):
        times = dict(roofline.own_times([event("aten::linear", 0, 100), event("aten::t", 10, 5),
                                         event("aten::addmm", 20, 70), event("aten::copy_", 30, 10),
                                         event("aten::add_", 100, 7)]))
        self.assertEqual(times, {"aten::linear": 25, "aten::t": 5, "aten::addmm": 60,
                                 "aten::copy_": 10, "aten::add_": 7})

    def test_time_of_several_streams_counts_once(self):
        self.assertEqual(roofline.busy([event("a", 0, 10), event("b", 5, 10), event("c", 20, 1)]), 16)
        self.assertEqual(roofline.busy([event("a", 0, 10), event("b", 2, 3)]), 10)

    def measured(self, events, steps, step_ms):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as trace:
            json.dump({"traceEvents": events + [{"ph": "M", "name": "process_name"}]}, trace)
            trace.flush()
            return roofline.measured(trace.name, steps, step_ms)

    def test_what_no_kernel_fills_is_bubbles(self):
        ms = self.measured([event("aten::mm", 0, 9000, category="cpu"), event("gemm", 0, 4000),
                            event("ncclDevKernel", 3000, 2000), event("gemm", 6000, 4000)], 2, 6.0)
        self.assertEqual(ms["GEMM"], 4.0)
        self.assertEqual(ms["communication"], 1.0)
        self.assertEqual(ms[roofline.BUBBLES], 6.0 - 4.5)

    def test_without_a_gpu_threads_are_taken_apart(self):
        ms = self.measured([event("aten::mm", 0, 2000, 1, "cpu"),
                            event("aten::linear", 0, 3000, 2, "cpu"),
                            event("aten::softmax", 500, 1000, 2, "cpu")], 1, 3.0)
        self.assertEqual((ms["GEMM"], ms["attention"], ms[roofline.BUBBLES]), (4.0, 1.0, 0.0))

    def test_the_least_that_a_step_needs(self):
        least = roofline.floors(LLAMA_8B, 8192, 1, FP32_STATE, "none", 989, 3350)
        # 6 operations for each of 7.5 billion weights in products and token; all 8.03 billion
        # parameters, 32 bytes of each and 2 of its weight in bf16, pass the memory.
        self.assertAlmostEqual(least["GEMM"], 6 * 7.505e9 * 8192 / 989e9, delta=1)
        self.assertAlmostEqual(least["optimizer"], 8.03e9 * 34 / 3350e6, delta=0.2)
        # Of bf16 logits 2 bytes each are read forward, and 2 read and 2 written backward.
        self.assertAlmostEqual(least["loss"], 6 * 8192 * 128256 / 3350e6, delta=1e-6)
        recomputed = roofline.floors(LLAMA_8B, 8192, 1, FP32_STATE, "full", 989, 3350)
        self.assertGreater(recomputed["GEMM"], 1.3 * least["GEMM"])
        narrow = roofline.floors(LLAMA_8B, 8192, 1, {"param": 2, "moment": 2}, "none", 989, 3350)
        self.assertAlmostEqual(narrow["optimizer"], 8.03e9 * 20 / 3350e6, delta=0.2)
        self.assertEqual(roofline.floors(LLAMA_8B, 8192, 1, FP32_STATE, "none", None, None), {})


FP32_STATE = {"param": 4, "moment": 4}
SMALL = {"dim": 64, "layers": 1, "heads": 4, "kv_heads": 2, "ffn": 192, "vocab": 50, "tied": True}


class Peer(unittest.TestCase):
    def setUp(self):
        try:
            import peer
        except ImportError as error:
            self.skipTest(str(error))
        self.peer = peer

    def run_peer(self, torchtitan):
        return self.peer.run({"model": SMALL, "seq_len": 16, "micro": 2, "steps": 2,
                              "passes": 2, "device": "cpu", "compile": False,
                              "torchtitan": torchtitan})

    def test_torchtitans_model_has_our_widths(self):
        for model in (LLAMA_1B, LLAMA_8B, {**LLAMA_1B, "dim": 3072, "heads": 24}, SMALL):
            told = self.peer.torchtitan_arguments(model, 2048)
            width = int(told["ffn_dim_multiplier"] * int(2 * 4 * told["dim"] / 3))
            multiple = told["multiple_of"]
            self.assertEqual((width + multiple - 1) // multiple * multiple, model["ffn"])

    def test_steps_of_our_own_and_of_torchtitans_model(self):
        self.assertEqual(len(self.run_peer(False)["step_ms"]), 2)
        import torch

        class Transformer(torch.nn.Module):  # as TorchTitan's looks from outside
            def __init__(self, told):
                super().__init__()
                self.tok_embeddings = torch.nn.Embedding(told["vocab_size"], told["dim"])
                self.output = torch.nn.Linear(told["dim"], told["vocab_size"], bias=False)

            def forward(self, tokens):
                return self.output(self.tok_embeddings(tokens))

        package = types.ModuleType("torchtitan.models.llama3")
        package.Transformer, package.TransformerModelArgs = Transformer, dict
        parents = {name: types.ModuleType(name) for name in ("torchtitan", "torchtitan.models")}
        with unittest.mock.patch.dict(sys.modules,
                                      {**parents, "torchtitan.models.llama3": package}):
            self.assertEqual(len(self.run_peer(True)["step_ms"]), 2)
        with unittest.mock.patch.dict(sys.modules, {"torchtitan": None}):
            self.assertRaises(ImportError, self.run_peer, True)


def steps_of(loss):
    return [{"step": step, "loss": loss, "grad_norm": loss / 7, "time": time.time()}
            for step in range(1, 9)]


def save_checkpoint(directory, name):
    os.mkdir(os.path.join(directory, name))
    with open(os.path.join(directory, name, "manifest.json"), "w"):
        pass


class FakeTrainer:
    """hptrain on a GPU that says so of its kernels; `loss` of a spec and the number of the run."""

    def __init__(self, kernels, loss):
        self.kernels, self.loss, self.count = kernels, loss, 0
        self.saved = tempfile.TemporaryDirectory()
        save_checkpoint(self.saved.name, "step-4.g1")

    def start(self, spec, stop_after=0):
        self.count += 1
        left_out = "HPTRAIN_DEVICE_KERNELS" in spec.get("environment", {})
        log = "runtime: device cuda sm_90, device_kernels " + \
            ("LibTorch's" if left_out else self.kernels) + "\nattention: packed\n"
        loss = self.loss(spec, self.count)

        def result():
            if loss is None:
                raise RunFailed("run 1: exit code 3; CUDA error: no kernel image")
            steps = steps_of(loss)[spec.get("start_step", 0):stop_after or None]
            return steps, log, self.saved.name

        return result


RUN = {"model": SMALL, "seq_len": 16, "micro": 1, "steps": 1, "precision": "fp32"}
FAKE_PROGRAM = """#!/usr/bin/env python3
import json, os, sys
document = json.load(open(sys.argv[2]))
with open(document["metrics_path"], "w") as out:
    out.write(json.dumps({"step": document["train"]["steps"], "loss": 1.0,
                          "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}) + "\\n")
"""


class Checks(unittest.TestCase):
    def checked(self, trainer):
        return {what: passed for what, passed, _ in checks.checks(trainer, "cuda", 0)}

    def test_a_run_without_fused_kernels_does_not_pass(self):
        by_nvrtc = [f"{precision}: fused kernels by NVRTC" for precision in ("fp32", "bf16")]
        without = [f"{precision}: losses without fused kernels, to {bound}"
                   for precision, bound in (("fp32", "0.0001"), ("bf16", "0.02"))]
        passed = self.checked(FakeTrainer("nvrtc 12.4 sm_90", lambda spec, _: 7.0))
        self.assertEqual([passed[what] for what in by_nvrtc + without], [True] * 4)
        passed = self.checked(FakeTrainer("LibTorch's", lambda spec, _: 7.0))
        self.assertEqual([passed[what] for what in by_nvrtc], [False] * 2)
        passed = self.checked(FakeTrainer(
            "nvrtc 12.4 sm_90", lambda spec, _: 7.0 + ("environment" in spec)))
        self.assertEqual([passed[what] for what in without], [False] * 2)

    def test_a_run_that_fails_costs_its_own_rows_alone(self):
        rows = lambda loss: {what: (passed, detail) for what, passed, detail in
                             checks.checks(FakeTrainer("nvrtc", loss), "cuda", 2)}
        whole = rows(lambda spec, _: 7.0)
        for count, fails in (
                (3, lambda spec: spec.get("mask") and spec["precision"] == "bf16" and
                 "arch" not in spec["model"]),
                (3, lambda spec: spec["precision"] == "fp16"),
                (2, lambda spec: spec.get("gpu", {}).get("attention") == "flash"),
                (2, lambda spec: "resume" in spec)):
            found = rows(lambda spec, _, fails=fails: None if fails(spec) else 7.0)
            self.assertEqual(list(found), list(whole))
            changed = [what for what in whole if found[what] != whole[what]]
            self.assertEqual(len(changed), count, changed)
            for what in changed:
                self.assertEqual((found[what][0], "exit code 3" in found[what][1]), (False, True))
        # The very first one: the row of each other run that is compared with no other stays.
        found = rows(lambda spec, count: None if count == 1 else 7.0)
        self.assertEqual(list(found), list(whole))
        self.assertEqual(found["qwen2, fp32: losses of the CPU, to 1e-4"],
                         whole["qwen2, fp32: losses of the CPU, to 1e-4"])

    def test_what_is_refused_is_left_out_and_no_failure(self):
        def start(spec):
            def result():
                raise RunFailed("workload.train.gpu.attention: cudnn is not to be had: sm_70")
            return result

        for _, passed, detail in checks.named_kernels(start, {}, lambda: steps_of(7.0)):
            self.assertIsNone(passed)
            self.assertIn("sm_70", detail)

    def test_variants_that_are_wrong_do_not_pass(self):
        spec = {"model": points.SMALL, "precision": "fp32"}

        def passed(loss):
            trainer = FakeTrainer("", loss)
            found = variants.checks(lambda one: checks.steps_of(trainer.start(one)), spec,
                                    lambda: steps_of(7.0), lambda: steps_of(7.0), "")
            return {what: passed for what, passed, _ in found}

        right = passed(lambda spec, _: 7.01)
        self.assertEqual(set(right.values()), {True})
        self.assertEqual(len([what for what in right if what.startswith("mistral")]), 12)
        for what, loss in (
                ("mistral with a window, fp32: losses of the CPU, to 1e-4",
                 lambda spec, _: 7.01 + ("environment" in spec)),
                ("qwen3, bf16: losses of fp32, to 2e-2",
                 lambda spec, _: 7.01 + (spec["precision"] == "bf16")),
                ("qwen2, bf16: norms of fp32's gradients, to 5e-3",
                 lambda spec, _: 7.01 + 0.1 * (spec["precision"] == "bf16")),
                ("gpt, bf16: the same bits run to run", lambda spec, count: 7.01 + count * 1e-9),
                ("mistral with a window, fp32: not a plain Llama's losses", lambda spec, _: 7.0),
                ("lora, fp32: not a plain Llama's losses", lambda spec, _: 7.0),
                ("fp16: not the same as without", lambda spec, _: 7.0),
                ("moments in bf16: losses without, to 2e-2", lambda spec, _: 8.0)):
            self.assertFalse(passed(loss)[what], what)

    def trainer_of(self, scratch, program=FAKE_PROGRAM):
        path = os.path.join(scratch, "program")
        with open(path, "w") as out:
            out.write(program)
        os.chmod(path, 0o755)
        trainer = Trainer(path, scratch, os.path.join(scratch, "failed.log"))
        trainer.data[50] = "none"
        return trainer

    def test_runs_side_by_side_have_their_own_results_and_environment(self):
        with tempfile.TemporaryDirectory() as scratch:
            trainer = self.trainer_of(scratch)
            with unittest.mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "0"}):
                begun = [trainer.start({**RUN, "steps": steps,
                                        **(variants.ON_CPU if steps == 3 else {})})
                         for steps in range(1, 6)]
                found = [run()[0] for run in begun]
        self.assertEqual([steps[0]["step"] for steps in found], [1, 2, 3, 4, 5])
        self.assertEqual([steps[0]["visible"] for steps in found], ["0", "0", "", "0", "0"])

    def failure_of(self, program, limit_s, world_size):
        """What a run of this program raises, and the last rank's log, which stays."""
        with tempfile.TemporaryDirectory() as scratch:
            trainer = self.trainer_of(scratch, program)
            trainer.limit_s = limit_s
            with self.assertRaises(RunFailed) as failed:
                trainer.run({**RUN, "world_size": world_size})
            with open(trainer.kept) as log:
                return str(failed.exception), log.read().split("--- ")[-1]

    def test_of_a_run_that_fails_the_logs_stay(self):
        second_fails = "#!/bin/sh\ncase $2 in *rank-1.json) echo a; echo gone >&2; exit 3;; esac\n"
        said, log = self.failure_of(second_fails, 60, 2)
        self.assertEqual((said, log), ("run 1: exit code 0, 3; gone",
                                       "run 1, rank 1: exit code 0, 3\ngone\n"))
        hangs = "#!/bin/sh\necho waits >&2\nkill -STOP $$\n"
        said, log = self.failure_of(hangs, 2, 1)
        self.assertEqual((said, log), ("run 1: no end within 2 s, 0 steps; waits",
                                       "run 1, rank 0: no end within 2 s, 0 steps\nwaits\n"))

    def test_a_part_whose_time_is_used_up_leaves_the_rest_out(self):
        with tempfile.TemporaryDirectory() as scratch:
            trainer = self.trainer_of(scratch)
            trainer.until = time.monotonic() - 1
            what, passed, detail = judged("one", trainer.start(RUN))
            self.assertEqual((passed, detail), (None, "no time: it was not begun"))
            trainer = self.trainer_of(scratch, "#!/bin/sh\nkill -STOP $$\n")
            trainer.until = time.monotonic() + 1
            what, passed, detail = judged("one", trainer.start(RUN))
        self.assertEqual((passed, detail), (None, "no time: run 1: ended after 0 steps; "))

    def test_what_the_check_of_kernels_said_before_it_ended_is_told(self):
        with tempfile.TemporaryDirectory() as scratch:
            trainer = self.trainer_of(
                scratch, "#!/bin/sh\n[ $2 = rotary ] || exit 0\necho FAILED rotary: 2 of 1\n"
                "echo on a card >&2\nexit 3\n")
            rows = {what: (passed, detail) for what, passed, detail in
                    checks.kernels_beside_references(trainer, trainer.program, "cuda")}
        self.assertEqual(len(rows), len(checks.KERNELS))
        self.assertEqual(rows.pop("kernels of rotary beside their reference"),
                         (False, "exit code 3; FAILED rotary: 2 of 1; on a card"))
        self.assertEqual({passed for passed, _ in rows.values()}, {True})

    def killed(self, losses_after):
        """The row of killed_in_mid_step() where the second process has these losses."""
        steps = lambda numbers, begin: [{"step": begin + i, "loss": loss, "grad_norm": 1.0,
                                         "time": time.time()} for i, loss in enumerate(numbers)]
        with tempfile.TemporaryDirectory() as saved:
            save_checkpoint(saved, "step-2.g1")
            os.mkdir(os.path.join(saved, "step-4.g1"))  # without a manifest
            begun = []

            def start(spec, stop_after=0):
                begun.append((spec, stop_after))
                run = steps([8., 7., 6., 5., 4.], 1) if stop_after else steps(losses_after, 3)
                return lambda: (run, "", saved)

            row, = checks.killed_in_mid_step(start, {"steps": 6},
                                             lambda: steps([8., 7., 6., 5., 4., 3.], 1))
        return row, begun, saved

    def test_a_run_that_is_killed_goes_on_from_its_newest_whole_checkpoint(self):
        (_, passed, detail), begun, saved = self.killed([6., 5., 4., 3.])
        self.assertTrue(passed, detail)
        self.assertIn("killed after step 5, went on after step 2: 3 steps", detail)
        self.assertEqual(begun[0][1], 5)
        self.assertEqual((begun[1][0]["resume"], begun[1][0]["start_step"]),
                         (os.path.join(saved, "step-2.g1"), 2))

    def test_other_losses_after_a_kill_fail(self):
        (_, passed, _), _, _ = self.killed([6., 5., 4., 3.5])
        self.assertFalse(passed)

    def test_each_kind_of_kernel_is_checked(self):
        with open(os.path.join(HERE, "kernels_check.cc")) as text:
            kinds = re.search(r"kKinds = \{([^}]*)\}", text.read()).group(1)
        self.assertEqual(tuple(re.findall(r'"(\w+)"', kinds)), checks.KERNELS)

    def test_a_workload_has_its_architectures_keys(self):
        trainer = Trainer("none", "/none", "/none")
        trainer.data[2048] = "none"
        spec = {"seq_len": 128, "micro": 2, "steps": 8, "precision": "bf16"}
        models = {what: trainer.workload({**spec, **changes}, "/none")["train"]["model"]
                  for what, changes in variants.architectures(points.SMALL)}
        self.assertEqual(models["mistral with a window"]["sliding_window"], 8)
        self.assertEqual(models["qwen2"]["tied_embeddings"], True)
        self.assertEqual((models["qwen3"]["arch"], models["qwen3"]["head_dim"]), ("qwen3", 64))
        self.assertEqual((models["gpt"]["kv_heads"], models["gpt"]["max_positions"]), (8, 256))
        for model in models.values():
            self.assertNotIn("tied", model)


class Operations(unittest.TestCase):
    def rows(self, script, limit_s=60):
        with tempfile.TemporaryDirectory() as scratch:
            program = os.path.join(scratch, "operations_bench")
            with open(program, "w") as out:
                out.write("#!/bin/sh\n" + script)
            os.chmod(program, 0o755)
            return list(operations.rows(program, "cuda", limit_s))

    def test_what_was_measured_before_a_failure_is_kept(self):
        line = '{"what": "norm", "ms": 0.5, "apart_ms": 1.0}'
        rows = self.rows(f"echo '{line}'\necho FAILED adamw\nexit 1\n")
        self.assertEqual(rows, [{"what": "norm", "ms": 0.5, "apart_ms": 1.0}])
        self.assertEqual(operations.table(rows)[-1], "| norm | 0.500 | 1.000 | 50 % |")
        self.assertEqual(self.rows(f"echo '{line}'\nexec sleep 60\n", limit_s=1), rows)

    def test_without_the_program_there_are_no_rows(self):
        self.assertEqual(list(operations.rows("/none", "cuda", 1)), [])
        self.assertEqual(operations.table([]), [])


class Points(unittest.TestCase):
    PLAN = {"gpu_bytes": 70 << 30, "flops_per_token": 8e9, "flops_per_token_causal": 7e9,
            "step_s": [10, 14]}

    def rows(self, seconds_left, memory, done=(), peers=False):
        trainer = unittest.mock.Mock()
        trainer.seconds_left.return_value = seconds_left
        trainer.run.return_value = (
            [{"step_ms": 1e3, "peak_memory_bytes": 1}] * 6, "", "/none")
        planner = unittest.mock.Mock()
        planner.plan.return_value = self.PLAN
        bench = benchmark.Benchmark(trainer, planner, "cuda", "NVIDIA H100", 989, memory)
        return list(bench.rows(points.ON_GPU[:1], peers, set(done)))

    def test_names_choose_and_a_wrong_one_lists_them(self):
        names = ["Qwen2.5-7B@1024", "1B@2048"]
        self.assertEqual([p.name for p in points.chosen(points.ON_GPU, names)], names)
        with self.assertRaisesRegex(ValueError, "no point 9B; there are 1B@2048, "):
            points.chosen(points.ON_GPU, ["9B"])

    def test_both_mfu_are_of_the_measured_rate(self):
        [row] = self.rows(480, 80 << 30)
        self.assertEqual(row["tokens_per_s"], 32 * 4 * 2048)
        self.assertAlmostEqual(row["mfu"], 8e9 * 262144 / 989e12)
        self.assertAlmostEqual(row["mfu_causal"], 7e9 * 262144 / 989e12)

    def test_a_missing_plan_costs_the_rate_of_the_card_alone(self):
        with unittest.mock.patch.object(self, "PLAN", {}):
            [row] = self.rows(480, 80 << 30)
        self.assertEqual((row["step_ms"], row["tflops"], row["mfu"]), (1e3, None, None))
        self.assertIn("| 1000.0 | 262144 |  |  |  |", benchmark.table([row])[-1])

    def test_a_point_without_memory_or_time_is_left_out_and_says_so(self):
        self.assertIn("needs 70 GiB, the card has 60", self.rows(480, 60 << 30)[0]["left_out"])
        self.assertIn("about 97 s, 90 s are left", self.rows(90, 80 << 30)[0]["left_out"])

    def test_what_was_measured_before_is_not_run_again(self):
        done = [("1B@2048", "hptrain")]
        self.assertEqual(self.rows(480, 80 << 30, done), [])
        # A peer's row does not depend on the plan of hptrain's memory.
        self.assertEqual([row["who"] for row in self.rows(0, 60 << 30, done, peers=True)],
                         ["PyTorch eager", "PyTorch compiled"])

    def test_widths_are_those_of_the_presets(self):
        with open(os.path.join(HERE, "../../common/job/model_presets.cc")) as text:
            presets = text.read()
        for name, m in (("llama3.2-1b", points.LLAMA_1B), ("llama3.2-3b", points.LLAMA_3B),
                        ("llama3-8b", points.LLAMA_8B), ("qwen2.5-0.5b", points.QWEN_05B),
                        ("qwen2.5-1.5b", points.QWEN_15B), ("qwen2.5-3b", points.QWEN_3B),
                        ("qwen2.5-7b", points.QWEN_7B)):
            widths = ", ".join(str(m[key]) for key in
                               ("dim", "layers", "heads", "kv_heads", "ffn", "vocab"))
            self.assertIn('{"%s", %s,' % (name, widths), presets)


class Results(unittest.TestCase):
    FACTS = {"device": "NVIDIA H100", "torch": "2.11"}

    def setUp(self):
        try:
            import results
        except ImportError as error:
            self.skipTest(str(error))
        self.results = results
        out = tempfile.TemporaryDirectory()
        self.addCleanup(out.cleanup)
        self.out = out.name

    def former(self, **changes):
        self.results.write(self.out, {**self.results.begun(self.FACTS), **changes})
        return self.results.gone_on_from(self.out, self.FACTS)

    def test_a_run_goes_on_with_the_rows_of_the_former_one(self):
        check = {"what": "one", "passed": True, "detail": "", "seconds": 1}
        row = {"point": "1B@2048", "who": "hptrain", "step_ms": 1, "tokens_per_s": 1, "tflops": 1,
               "mfu": 0.4, "mfu_causal": 0.4, "peak_memory_bytes": 1}
        failed = {"point": "1B@2048", "who": "PyTorch eager", "failed": "no memory"}
        former = self.former(checks=[check], benchmark=[row, failed], seconds={"checks": 40})
        self.assertEqual((former["checks"], former["benchmark"]), ([check], [row]))
        other = self.results.gone_on_from(self.out, {**self.FACTS, "torch": "2.14"})
        self.assertEqual(other["benchmark"], [])
        self.assertEqual(self.results.gone_on_from("/none", self.FACTS)["benchmark"], [])

    def test_checks_that_failed_or_did_not_end_are_made_again(self):
        check = {"what": "one", "passed": True, "detail": "", "seconds": 1}
        self.assertEqual(self.former(checks=[check])["checks"], [])
        for changed in ({"passed": False}, {"passed": None, "detail": str(NoTimeLeft("late"))}):
            former = self.former(checks=[{**check, **changed}], seconds={"checks": 40})
            self.assertEqual(former["checks"], [], changed)

    def test_a_write_that_breaks_off_leaves_the_former_results(self):
        self.former(seconds={"checks": 40})
        # The disk is full after 100 bytes.
        program = ("import resource, sys; sys.path.insert(0, sys.argv[1]); import results\n"
                   "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
                   "results.write(sys.argv[2], results.begun({'device': 'x' * 1000}))\n")
        done = subprocess.run([sys.executable, "-c", program, HERE, self.out],
                              capture_output=True, text=True, check=False)
        self.assertIn("File too large", done.stderr)
        self.assertEqual(self.results.gone_on_from(self.out, self.FACTS)["seconds"],
                         {"checks": 40})

    def test_a_part_alone_has_what_the_build_left_of_ten_minutes(self):
        import measure
        most = lambda **args: measure.Measurement.most_seconds(
            types.SimpleNamespace(args=types.SimpleNamespace(**args)))
        self.assertEqual(most(only="checks", spent=250), 335)
        self.assertEqual(most(only="checks", spent=20), 480)
        self.assertEqual(most(only=None, spent=250), 480)

    def test_a_killed_run_leaves_the_rows_that_it_knew(self):
        programs = {}
        for name, text in (("hptrain", "#!/bin/sh\nexit 3\n"),
                           ("kernels_check", "#!/bin/sh\n[ $2 = rotary ] && kill -STOP $$\n")):
            programs[name] = os.path.join(self.out, name)
            with open(programs[name], "w") as out:
                out.write(text)
            os.chmod(programs[name], 0o755)
        measure = [sys.executable, os.path.join(HERE, "measure.py"), "--device", "cpu",
                   "--hptrain", programs["hptrain"], "--kernels-check", programs["kernels_check"],
                   "--operations-bench", "none", "--point-plan", "none", "--only", "checks", "--out", self.out,
                   "--scratch", os.path.join(self.out, "scratch")]
        with subprocess.Popen(measure, stdout=subprocess.PIPE, text=True,
                              start_new_session=True) as run:
            # A row is printed before it is written, so the second one means that the first is.
            rows = (line for line in run.stdout if line.startswith("kernels of"))
            told = [next(rows), next(rows)]
            os.killpg(run.pid, signal.SIGKILL)
        with open(os.path.join(self.out, "results.json")) as text:
            known = [check["what"] for check in json.load(text)["checks"]]
        self.assertTrue(told[0].startswith(known[0]), (told, known))


class RuntimeNames(unittest.TestCase):
    def test_each_name_that_is_looked_up_is_known(self):
        counts = [len(runtime_names.names_in(source))
                  for _, source, _, _ in runtime_names.LIBRARIES]
        self.assertEqual(counts, [23, 6, 13])

    def test_a_name_that_a_library_lacks_is_told(self):
        libc = runtime_names.loaded(r"libc\.so\.6")
        self.assertEqual(runtime_names.missing(libc, ["malloc", "cudaMalloc", "free"]),
                         ["cudaMalloc"])
        self.assertIsNone(runtime_names.loaded(r"libcudart\.so\.99"))
        self.assertEqual(len(list(runtime_names.report())), 3)


if __name__ == "__main__":
    unittest.main()
