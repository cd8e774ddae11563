# SPDX-License-Identifier: Apache-2.0
"""torchrun of Debian's python3-torch 1.13 with the guard it lacks under Python 3.11: to_map() is
given None for "no redirect". Nothing else differs from `torchrun`."""
from torch.distributed.elastic import multiprocessing
from torch.distributed.run import main

if __name__ == "__main__":
    original = multiprocessing.to_map
    none = multiprocessing.Std.NONE
    multiprocessing.to_map = lambda value, n: original(none if value is None else value, n)
    main()
