# SPDX-License-Identifier: Apache-2.0
"""A Python that has its imports done and waits for the part of a rank (decision 1514).

  python [OPTIONS] -c BOOT TEXT CONTROL OUTPUT IMPORTS script|module|code TARGET [ARGUMENT ...]

BOOT runs what descriptor TEXT holds, which is this text. IMPORTS are names of modules with commas
between. TARGET is what python would be given without us; the process becomes what
`python [OPTIONS] TARGET [ARGUMENT ...]` would have been from its start, but for the environment of
a rank, which it gets when it is told to take part: modules see it that read it later than their
import.

OUTPUT, where it is not -1, is a descriptor that takes what is printed until then: descriptors 0 to
2 are those of a task, for which Python has made its streams, and which come again with its part.

It is told over descriptor CONTROL, the worker's end of the control socket
(common/worker/worker_control.h has the messages, common/net/packet.h their bytes). Beside a Join
comes a document in JSON: {"argv": the rank's whole command, "env": ["NAME=value", ...], "signals":
[those that were ignored for us, ...]}. What cannot be taken over as it should be is started anew in
this process, by exec.

It says when it is ready, and then answers when it is asked whether it still is. While it imports,
all threads have the lowest priority, where the process may raise it again. Who tells it to take part
before it is ready raises it first (agent/holder/worker.cc): a module that is loaded may hold the lock of the
interpreter for as long as that takes, and we could do nothing here.
"""
import array
import importlib
import importlib.machinery
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import time

JOIN, FINISH, TAKE, PING = 0, 2, 3, 5  # places in control::ToWorker
READY, PONG = 0, 4  # in control::FromWorker
STORE_SECONDS = 0.3
OURS = "hpctl standby"  # the name that BOOT compiles this text under


def set_policy_of_all_threads(policy):
    done = set()
    while True:  # a thread may have begun another meanwhile
        new = set(os.listdir("/proc/self/task")) - done
        if not new:
            return
        for thread in new:
            try:
                os.sched_setscheduler(int(thread), policy, os.sched_param(0))
            except ProcessLookupError:
                pass
        done |= new


def may_raise_priority():
    """Tried by a thread that ends, because one that may not stays as it is."""
    may = []

    def attempt():
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            may.append(True)
        except OSError:
            pass

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return bool(may)


def begin_low_priority(control):
    """Whether the priority was lowered. Who tells us to take part may have come before that."""
    if os.sched_getscheduler(0) != os.SCHED_OTHER or not may_raise_priority():
        return False
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    poll = select.poll()
    poll.register(control, select.POLLIN)
    if poll.poll(0):
        set_policy_of_all_threads(os.SCHED_OTHER)
    return True


def step_aside(output):
    """Who has the part now reads and writes the descriptors that the streams are made for."""
    null = os.open(os.devnull, os.O_RDONLY)
    for source, place in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, place)
    os.close(null)
    os.close(output)


def heed(signals):
    for number in signals:
        if signal.getsignal(number) == signal.SIG_IGN:
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


def set_path(kind, target):
    """The first entry of sys.path, as Python sets it for such a command."""
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return
    if kind == "script":
        sys.path[0] = os.path.dirname(os.path.realpath(target))
    elif kind == "module":
        sys.path[0] = os.getcwd()


def memory():
    """What waiting costs, for who reads the log; nothing where the kernel does not say it."""
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
            kib = {words[0]: int(words[1]) for words in map(str.split, lines) if words[-1] == "kB"}
    except OSError:
        return ""
    own = kib["Private_Clean:"] + kib["Private_Dirty:"]
    return f"; memory {own >> 10} MiB of its own, {kib['Rss:'] - own >> 10} MiB shared"


def say(control, message):
    """The holder listens no more once it has handed over the part, even before we are ready."""
    try:
        control.send(message)
    except BrokenPipeError:
        pass


def await_part(control):
    """Puts the descriptors of the generation into their places, and returns Join's document."""
    while True:
        packet, ancillary, _, _ = control.recvmsg(256, socket.CMSG_SPACE(4))
        descriptors = array.array("i")
        for _, _, data in ancillary:
            descriptors.frombytes(data[: len(data) - len(data) % 4])
        if not packet or packet[0] == FINISH:
            sys.exit(0)
        if packet[0] == TAKE:
            (place,) = struct.unpack_from("=i", packet, 1)
            os.dup2(descriptors[0], place)
            os.close(descriptors[0])
        elif packet[0] == PING:
            say(control, bytes([PONG]) + packet[1:])
        elif packet[0] == JOIN:
            with open(descriptors[0], encoding="utf-8") as document:
                return json.load(document)


def source_of(script):
    """None: not a file with Python's text, such as a directory, an archive or compiled code."""
    try:
        with open(script, "rb") as file:
            source = file.read()
    except OSError:
        return None
    is_text = not source.startswith((b"PK", importlib.util.MAGIC_NUMBER))
    return source if is_text else None


def empty_main():
    """The namespace of __main__ as it is before a program runs in it."""
    names = sys.modules["__main__"].__dict__
    for name in set(names) - {"__name__", "__builtins__", "__loader__"}:
        del names[name]
    names.update(__doc__=None, __package__=None, __spec__=None)
    return names


def run_text(text, path, names):
    exec(compile(text, path, "exec", dont_inherit=True), names)


def run_script(target, source):
    path = os.path.join(os.getcwd(), target) if sys.version_info >= (3, 9) else target
    names = empty_main()
    names.update(__file__=path, __cached__=None)
    names["__loader__"] = importlib.machinery.SourceFileLoader("__main__", path)
    run_text(source, path, names)


def run_module(name):
    empty_main()
    runpy._run_module_as_main(name)  # what `python -m` itself calls


def await_store():
    """A rank of torch.distributed that connects before rank 0 listens tries again after a second;
    all ranks stood by, so rank 0 is rarely more than some hundredths of a second behind."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if "torch" not in sys.modules or not host or not port or os.environ.get("RANK") == "0":
        return
    address = (host, int(port))
    until = time.monotonic() + STORE_SECONDS
    while time.monotonic() < until:
        try:
            socket.create_connection(address, STORE_SECONDS).close()
            return
        except OSError:
            time.sleep(0.005)


def run(kind, target, argv):
    source = source_of(target) if kind == "script" else None
    if source is not None:
        run_script(target, source)
    elif kind == "code":
        run_text(target, "<string>", empty_main())
    elif kind == "module" and hasattr(runpy, "_run_module_as_main"):
        run_module(target)
    else:
        os.execvp(argv[0], argv)


def main():
    control, output = map(int, sys.argv[2:4])
    imports, kind, target = sys.argv[4:7]
    sys.argv[:] = [{"script": target, "module": "-m", "code": "-c"}[kind], *sys.argv[7:]]
    set_path(kind, target)
    if output >= 0:
        step_aside(output)
    control = socket.socket(fileno=control)
    is_lowered = begin_low_priority(control)
    begin = time.monotonic()
    for name in imports.split(","):
        importlib.import_module(name)
    seconds = time.monotonic() - begin
    if is_lowered:
        set_policy_of_all_threads(os.SCHED_OTHER)
    # One write, also with -u: nobody who sees the line may find its end in the log of the rank.
    sys.stdout.write(f"standby is ready: imported {imports} in {seconds:.2f} s{memory()}\n")
    sys.stdout.flush()
    say(control, bytes([READY]))
    part = await_part(control)
    control.close()
    os.environ.update(entry.split("=", 1) for entry in part["env"])
    heed(part["signals"])
    await_store()
    try:
        run(kind, target, part["argv"])
    except Exception as error:  # told without our own frames, as Python tells it
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename == OURS:
            frames = frames.tb_next
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        sys.exit(1)


main()
