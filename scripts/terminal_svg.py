#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records a command as an animated SVG: what it prints, at the pace in which it printed it.

    scripts/terminal_svg.py OUT.svg --title TEXT [--at PATTERN=COMMAND]... [--from PATTERN] -- COMMAND...

--at runs a shell command when a line that matches the pattern is printed, once, and shows that
command as a line of its own. --from begins the picture with the first line that matches. The picture
shows the last rows that fit, plays in real time, and begins again after a pause. Without animation
(a printed page) it shows the end. No JavaScript, no font of its own.
Example (docs/images/kill-recovery.svg):
    scripts/terminal_svg.py docs/images/kill-recovery.svg --title 'A worker is killed' \\
      --from 'step 2' --at 'step 3=kill -9 PID' -- hpctl submit examples/quickstart.yaml --local --wait
"""
import argparse
import html
import re
import subprocess
import sys
import time

COLUMNS, ROWS = 100, 12
WIDTH, LINE, MARGIN = 860, 19, 14
PAUSE = 4.0  # seconds at the end
TOGETHER = 0.1  # seconds
COLOURS = ((r"^>>> ", "#ff7b72"), (r"JobRecovering|CauseFound|RECOVERING", "#f0b72f"),
           (r"JobRunning|JobFinished|FINISHED", "#3fb950"))


def record(command, triggers):
    """[(seconds, line)], as they came."""
    lines, begun = [], time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as run:
        for line in run.stdout:
            lines.append((time.monotonic() - begun, line.rstrip("\n")))
            for trigger in [t for t in triggers if re.search(t[0], line)]:
                triggers.remove(trigger)
                said = subprocess.run(trigger[1], shell=True, check=True, text=True,
                                      stdout=subprocess.PIPE).stdout.strip()
                lines.append((time.monotonic() - begun, ">>> " + (said or trigger[1])))
    if run.returncode != 0:
        sys.exit(f"{command[0]} ended with {run.returncode}")
    return lines


def colour_of(line):
    return next((colour for pattern, colour in COLOURS if re.search(pattern, line)), "#e6edf3")


def frames_of(recorded):
    """[(seconds, number of lines on the screen by then)]; lines that come together are one frame."""
    frames = []
    for number, (at, _) in enumerate(recorded, 1):
        at -= recorded[0][0]
        if frames and at - frames[-1][0] < TOGETHER:
            frames[-1] = (frames[-1][0], number)
        else:
            frames.append((at, number))
    return frames


def rows_of(lines):
    return "".join(f'<tspan x="{MARGIN}" dy="{LINE}" fill="{colour_of(line)}">'
                   f"{html.escape(line[:COLUMNS]) or ' '}</tspan>" for line in lines)


def picture(title, recorded):
    lines = [line for _, line in recorded]
    frames = frames_of(recorded)
    total = frames[-1][0] + PAUSE
    keys, texts = [], []
    for number, (at, count) in enumerate(frames):
        begin = at / total * 100
        is_last = number + 1 == len(frames)
        end = "" if is_last else f"{frames[number + 1][0] / total * 100:.3f}%{{opacity:0}}"
        keys.append(f"@keyframes f{number}{{0%{{opacity:{int(begin == 0)}}}"
                    f"{begin:.3f}%{{opacity:1}}{end}}}"
                    f"#f{number}{{animation:f{number} {total:.1f}s step-end infinite}}")
        texts.append(f'<text id="f{number}"{" class=" + repr("last") if is_last else ""} '
                     f'xml:space="preserve" y="{MARGIN + 22}">'
                     f"{rows_of(lines[max(0, count - ROWS):count])}</text>")
    height = MARGIN * 2 + 26 + LINE * ROWS
    style = ("text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;opacity:0}"
             ".title{font:13px system-ui,sans-serif;fill:#9198a1;opacity:1}" + "".join(keys) +
             "@media (prefers-reduced-motion:reduce),print{text{animation:none!important}"
             ".last{opacity:1}}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}"><title>{html.escape(title)}</title>'
            f"<style>{style}</style>"
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#0d1117"/>'
            f'<text class="title" x="{MARGIN}" y="24">{html.escape(title)}</text>\n'
            + "\n".join(texts) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--title", required=True)
    parser.add_argument("--at", action="append", default=[], metavar="PATTERN=COMMAND")
    parser.add_argument("--from", dest="begin", default="")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    recorded = record(args.command, [tuple(at.split("=", 1)) for at in args.at])
    first = next((i for i, (_, line) in enumerate(recorded) if re.search(args.begin, line)), None)
    if first is None:
        sys.exit(f"no line matches {args.begin}")
    with open(args.out, "w", encoding="utf-8") as out:
        out.write(picture(args.title, recorded[first:]))


if __name__ == "__main__":
    main()
