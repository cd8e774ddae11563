#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The parts of tests/gpu that need no GPU: what the roofline makes of a trace, what the peers and
hptrain are told, and that checks fail where they should. By ctest."""
import glob
import json
import os
import re
import sys
import tempfile
import types
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import roofline
import variants

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
        least = roofline.floors(LLAMA_8B, 8192, 1, 4, "none", 989, 3350)
        # 6 operations for each of 7.5 billion weights in products and token; all 8.03 billion
        # parameters, 32 bytes of each, pass the memory.
        self.assertAlmostEqual(least["GEMM"], 6 * 7.505e9 * 8192 / 989e9, delta=1)
        self.assertAlmostEqual(least["optimizer"], 8.03e9 * 32 / 3350e6, delta=0.2)
        # Of bf16 logits 2 bytes each are read forward, and 2 read and 2 written backward.
        self.assertAlmostEqual(least["loss"], 6 * 8192 * 128256 / 3350e6, delta=1e-6)
        self.assertGreater(roofline.floors(LLAMA_8B, 8192, 1, 4, "full", 989, 3350)["GEMM"],
                           1.3 * least["GEMM"])
        self.assertEqual(roofline.floors(LLAMA_8B, 8192, 1, 4, "none", None, None), {})


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
                              "device": "cpu", "compile": False, "torchtitan": torchtitan})

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
    return [{"step": step, "loss": loss, "grad_norm": loss / 7} for step in range(1, 9)]


class FakeTrainer:
    """hptrain on a GPU that says so of its kernels; `loss` of a spec and the number of the run."""

    def __init__(self, kernels, loss):
        self.kernels, self.loss, self.count = kernels, loss, 0

    def run(self, spec, cpu=False):
        self.count += 1
        left_out = "HPTRAIN_DEVICE_KERNELS" in spec.get("environment", {})
        log = "runtime: device cuda sm_90, device_kernels " + \
            ("LibTorch's" if left_out else self.kernels)
        return steps_of(self.loss(spec, self.count)), log, "/none"

    def run_all(self, specs):
        return [self.run(spec)[0] for spec in specs]


FAKE_PROGRAM = """#!/usr/bin/env python3
import json, os, sys
document = json.load(open(sys.argv[2]))
with open(document["metrics_path"], "w") as out:
    out.write(json.dumps({"step": document["train"]["steps"], "loss": 1.0,
                          "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}) + "\\n")
"""


class Measure(unittest.TestCase):
    def setUp(self):
        try:
            import measure
        except ImportError as error:
            self.skipTest(str(error))
        self.measure = measure

    def checked(self, trainer):
        return {what: passed for what, passed, _ in self.measure.checks(trainer, "cuda", 0)}

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

    def test_variants_that_are_wrong_do_not_pass(self):
        spec = {"model": self.measure.SMALL, "precision": "fp32"}

        def passed(loss):
            found = variants.checks(FakeTrainer("", loss), spec, steps_of(7.0), steps_of(7.0), "")
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

    def test_runs_side_by_side_keep_their_order_and_have_their_environment(self):
        with tempfile.TemporaryDirectory() as scratch:
            program = os.path.join(scratch, "program")
            with open(program, "w") as out:
                out.write(FAKE_PROGRAM)
            os.chmod(program, 0o755)
            trainer = self.measure.Trainer(program, scratch)
            trainer.data[50] = "none"
            specs = [{"model": SMALL, "seq_len": 16, "micro": 1, "steps": steps,
                      "precision": "fp32", **(variants.ON_CPU if steps == 3 else {})}
                     for steps in range(1, 6)]
            with unittest.mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "0"}):
                found = trainer.run_all(specs)
        self.assertEqual([steps[0]["step"] for steps in found], [1, 2, 3, 4, 5])
        self.assertEqual([steps[0]["visible"] for steps in found], ["0", "0", "", "0", "0"])

    def test_a_workload_has_its_architectures_keys(self):
        trainer = self.measure.Trainer("none", "/none")
        trainer.data[2048] = "none"
        spec = {"seq_len": 128, "micro": 2, "steps": 8, "precision": "bf16"}
        models = {what: trainer.workload({**spec, **changes}, "/none")["train"]["model"]
                  for what, changes in variants.architectures(self.measure.SMALL)}
        self.assertEqual(models["mistral with a window"]["sliding_window"], 8)
        self.assertEqual(models["qwen2"]["tied_embeddings"], True)
        self.assertEqual((models["qwen3"]["arch"], models["qwen3"]["head_dim"]), ("qwen3", 64))
        self.assertEqual((models["gpt"]["kv_heads"], models["gpt"]["max_positions"]), (8, 256))
        for model in models.values():
            self.assertNotIn("tied", model)


if __name__ == "__main__":
    unittest.main()
