# SPDX-License-Identifier: Apache-2.0
"""Rows of the checks: what was found beside what was expected. Runs are begun before they are
looked at; a row whose run failed says so, and keeps no other from being looked at."""


class RunFailed(Exception):
    """What became of a run of hptrain, in one line."""


class NoTimeLeft(RunFailed):
    """The run was not begun, or was ended, because its part has used up its time."""
    TELLS = "no time: "

    def __init__(self, text):
        super().__init__(self.TELLS + text)


def worst(a, b, number="loss"):
    return max(abs(x[number] - y[number]) / abs(y[number]) for x, y in zip(a, b))


def same(a, b):
    numbers = lambda steps: [(s["step"], s["loss"], s["grad_norm"]) for s in steps]
    return numbers(a) == numbers(b)


def judged(what, found, detail="8 steps, losses and norms", below=None):
    """(what, passed, detail): whether found() holds, or is below a bound. `detail`: text, or what
    gives it. passed is None where there was no time to find out."""
    try:
        value = found()
        detail = detail() if callable(detail) else detail
    except NoTimeLeft as error:
        return what, None, str(error)
    except Exception as error:  # whatever it is: other rows are still to be looked at
        return what, False, f"{type(error).__name__}: {error}"
    return (what, value, detail) if below is None else (what, value < below, f"{value:.2g}")
