# SPDX-License-Identifier: Apache-2.0
"""The state of a GPU in host memory: a process that is killed before the seal of a copy, and what
copies cost."""
import fcntl
import os
import struct
import time

from judged import judged, same

# common/worker/arena_header.h
OWN_SLOTS, FIRST_SLOT, SLOT_BYTES, UNSEALED = 4, 64, 64, 2**64 - 1


def new_arena():
    """The memory file of a holder. Above the descriptors that hptrain is given."""
    made = os.memfd_create("arena")
    arena = fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(made)
    return arena


def sealed_step(arena):
    """The newest step that is sealed there; None: none is."""
    header = os.pread(arena, FIRST_SLOT + OWN_SLOTS * SLOT_BYTES, 0)
    steps = [struct.unpack_from("=Q", header, FIRST_SLOT + slot * SLOT_BYTES)[0]
             for slot in range(OWN_SLOTS)] if len(header) > FIRST_SLOT else []
    return max((step for step in steps if step != UNSEALED), default=None)


def killed_before_the_seal(start, spec, whole, cuda):
    """As checks(): SIGKILL when the copy of the fifth step has arrived and is not sealed yet, or on
    a CPU behind the sixth step. Another process goes on from what is sealed, without a file."""
    arena = new_arena()
    spec = {**spec, "arena": arena, "copy_every": 1, "save_every": 0}
    point = "trainer.copy.arrived:6" if cuda else "trainer.step.applied:6"
    killed = start({**spec, "environment": {"HPCTL_FAILPOINT": point}, "dies": True})
    found = {}

    def goes_on():
        done = killed()[0]
        step = sealed_step(arena)
        if step != (4 if cuda else 6):
            raise ValueError(f"step {step} is sealed")
        begun = time.time()
        steps = start({**spec, "generation": 2, "start_step": step, "from_memory": True})()[0]
        os.close(arena)
        found.update(done=len(done), step=step, seconds=steps[0]["time"] - begun)
        return same(steps, whole()[step:])

    yield judged("bf16: killed before the seal of a copy, goes on from memory with the same bits",
                 goes_on, lambda: "killed after {done} steps, went on from memory after step {step}, "
                                  "{seconds:.1f} s to the first".format(**found))


def cost_in(log):
    """What hptrain says that copies cost; "": nothing yet."""
    lines = [line for line in log.split("\n") if "copies of the state in host memory:" in line]
    return lines[-1][lines[-1].index("copies of the state"):] if lines else ""
