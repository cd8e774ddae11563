#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the sources and headers that a change may keep from compiling alone.

    scripts/may_break.py BASE          the change is from commit BASE to the working tree
    scripts/may_break.py BASE --code   prints only the files of which more than comments changed

The batches of the build compile every file together with its neighbours. They miss a file that lacks
an #include for a name that a neighbour declares. A file that the change does not touch can come to
lack a name only if a header below it lost something. So this prints the files of which more changed than
comments and layout, and of the files that include a changed header, directly or through others:
  - all, if the header is gone or lost an #include;
  - those that mention a name that the header no longer has.
A file that moved is compared with what it was. So a move with its new paths in #include lines changes no
code: a path that is wrong stops every build.
scripts/includes.sh has the include graph.
"""
import collections
import os
import re
import subprocess
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)', re.M)
INCLUDE_LINE = re.compile(r'^\s*#\s*include\s*[<"][^>"\n]+[>"]', re.M)
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.S)
NAME = re.compile(r"[A-Za-z_]\w*")


def lines_of(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()


def git(*arguments):
    return lines_of("git", "-c", "core.quotePath=off", *arguments)


def text_of(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None


def text_at(base, path):
    shown = subprocess.run(["git", "show", f"{base}:{path}"], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, check=False)
    return shown.stdout.decode("utf-8", "replace") if shown.returncode == 0 else None


def names(text):
    return set(NAME.findall(NOT_CODE.sub(" ", text)))


def code_of(text):
    """Without comments and layout. Comments to clang-tidy are code."""
    def kept(match):
        return match[0] if match[0][0] == '"' or "NOLINT" in match[0] else " "

    return COMMENT.sub(kept, text).split()


class Moves:
    """The files that moved since `base`, and texts as they would read with the new paths."""

    def __init__(self, base):
        self.base = base
        self.origin = {}  # new path -> old path
        for line in git("diff", "--name-status", "--find-renames", "-l0", base, "--"):
            fields = line.split("\t")
            if fields[0].startswith("R"):
                self.origin[fields[2]] = fields[1]
        self.place = {old: new for new, old in self.origin.items()}

    def old_text(self, path):
        """Of the file that is at `path` now; None if it is new."""
        return text_at(self.base, self.origin.get(path, path))

    def includes(self, text):
        return [self.place.get(name, name) for name in INCLUDE.findall(text)]

    def has_other_code(self, path):
        old, new = self.old_text(path), text_of(path)
        if old is None or new is None:
            return True
        if code_of(INCLUDE_LINE.sub("", old)) != code_of(INCLUDE_LINE.sub("", new)):
            return True
        before, after = self.includes(old), INCLUDE.findall(new)
        if before != INCLUDE.findall(old):  # new paths sort otherwise
            return sorted(before) != sorted(after)
        return before != after


def dependents(path, includers):
    """Files that include `path`, directly or through others."""
    found, queue = {path}, collections.deque([path])
    while queue:
        for file in includers[queue.popleft()] - found:
            found.add(file)
            queue.append(file)
    return found - {path}


def main():
    base = sys.argv[1]
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    changed = set(git("diff", "--name-only", "--no-renames", base, "--"))
    changed |= set(git("ls-files", "--others", "--exclude-standard"))
    includers = collections.defaultdict(set)
    for line in lines_of("scripts/includes.sh"):
        file, included = line.split(" ", 1)
        includers[included].add(file)

    moves = Moves(base)
    found = {path for path in changed
             if re.search(r"[.](cc|c|h)$", path) and moves.has_other_code(path)}
    for path in sorted(changed if sys.argv[2:] != ["--code"] else ()):
        if not path.endswith((".h", ".proto")):
            continue
        if path in moves.place:
            continue
        old, new = moves.old_text(path), text_of(path)
        if old is None:
            continue  # a new header takes nothing away
        if new is None or set(moves.includes(old)) - set(INCLUDE.findall(new)):
            found |= dependents(path, includers)
            continue
        lost = names(old) - names(new)
        if lost:
            found |= {file for file in dependents(path, includers)
                      if names(text_of(file) or "") & lost}
    for path in sorted(found):
        if os.path.isfile(path) and re.search(r"[.](cc|c|h)$", path):
            print(path)


if __name__ == "__main__":
    main()
