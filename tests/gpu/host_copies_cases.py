# SPDX-License-Identifier: Apache-2.0
"""Cases of scripts_test.py: checks of the copies of a GPU's state in host memory."""
import os
import struct
import time
import unittest

import benchmark
import host_copies


class HostCopies(unittest.TestCase):
    def killed_before_the_seal(self, sealed, losses_after):
        """The row where these steps are sealed when the first process has died."""
        steps = lambda numbers, begin: [{"step": begin + i, "loss": loss, "grad_norm": 1.0,
                                         "time": time.time()} for i, loss in enumerate(numbers)]
        begun = []

        def start(spec, stop_after=0):
            begun.append(spec)
            if "dies" in spec:
                slots = [host_copies.UNSEALED] * host_copies.OWN_SLOTS
                slots[1:1 + len(sealed)] = sealed
                header = bytes(host_copies.FIRST_SLOT) + b"".join(
                    struct.pack("=Q", step) + bytes(host_copies.SLOT_BYTES - 8) for step in slots)
                os.pwrite(spec["arena"], header, 0)
            run = steps([8., 7., 6., 5., 4.], 1) if "dies" in spec else steps(losses_after, 5)
            return lambda: (run, "", "")

        row, = host_copies.killed_before_the_seal(start, {"steps": 6},
                                                  lambda: steps([8., 7., 6., 5., 4., 3.], 1), True)
        return row, begun

    def test_a_run_that_is_killed_goes_on_from_what_is_sealed_in_memory(self):
        (_, passed, detail), begun = self.killed_before_the_seal([3, 4], [4., 3.])
        self.assertTrue(passed, detail)
        self.assertIn("killed after 5 steps, went on from memory after step 4", detail)
        self.assertEqual(begun[0]["environment"], {"HPCTL_FAILPOINT": "trainer.copy.arrived:6"})
        self.assertEqual((begun[1]["from_memory"], begun[1]["start_step"]), (True, 4))

    def test_a_seal_that_came_too_early_or_other_losses_fail(self):
        for sealed, losses in (([5, 4], [4., 3.]), ([], [4., 3.]), ([4], [4., 3.5])):
            (_, passed, _), _ = self.killed_before_the_seal(sealed, losses)
            self.assertFalse(passed, sealed)

    def test_the_cost_of_copies_is_shown(self):
        log = "a line\n2026 I rank 0: copies of the state in host memory: every step, 1.0 MB\n"
        self.assertEqual(host_copies.cost_in(log),
                         "copies of the state in host memory: every step, 1.0 MB")
        self.assertEqual(host_copies.cost_in("a line"), "")
        row = {"point": "1B", "who": "hptrain", "step_ms": 1.0, "tokens_per_s": 1, "tflops": None,
               "mfu": None, "mfu_causal": None, "peak_memory_bytes": 1,
               "copies": host_copies.cost_in(log)}
        self.assertIn("every step", benchmark.table([row])[-1])
