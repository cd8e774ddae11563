# SPDX-License-Identifier: Apache-2.0
"""The last import of a Python that stands by: a file named by its pid, in the directory
$STANDING_BY, says that the others are done."""
import os

open(os.path.join(os.environ["STANDING_BY"], str(os.getpid())), "w").close()
